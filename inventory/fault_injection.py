"""Named places where a test may kill, freeze or break a process, switched on by FAIRDROP_FAULT=name:action[:nth].
Off, a place costs one comparison; production refuses to start with it on.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

# In the order in which a settler passes them.
SETTLER_POINTS = (
    "before_take",
    "after_take",
    "after_fence",
    "in_transaction",
    "after_commit",
    "after_settle",
    "before_release",
)
EXPIRER_POINTS = ("before_expire", "in_expire", "after_expire")
# Of one SKU that has drifted: before the first look, before and after the first repair, after the last.
RECONCILER_POINTS = ("before_reconcile", "before_repair", "in_repair", "after_reconcile")
# Of one sale that is retired: marked but not forgotten, forgotten by half, forgotten.
RETIRING_POINTS = ("before_forget", "in_forget", "after_forget")
# Of what goes with its time: after each step that deleted something; and of a buyer who is forgotten, by half.
RETENTION_POINTS = ("in_retention", "in_forget_buyer")
# Of one mail: queued but not noted as told, and about to be sent.
MAILER_POINTS = ("in_mail", "before_mail")
# Of one step that publishes: written but not committed, and committed but its checkpoint not kept in Redis.
NOTARY_POINTS = ("before_checkpoint", "after_checkpoint")
# Of after_restore: sales paused, a page of orders written but not committed, committed, payments made but not settled,
# and the books right but Redis not told.
RESTORE_POINTS = ("after_pause", "in_bring_back", "after_bring_back", "in_charges", "before_tell")
WORKER_POINTS = SETTLER_POINTS + EXPIRER_POINTS + RECONCILER_POINTS
FAULT_POINTS = WORKER_POINTS + RETIRING_POINTS + RETENTION_POINTS + MAILER_POINTS + NOTARY_POINTS + RESTORE_POINTS
ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "raise": None}


class FaultRaised(Exception):
    """A test asked for this error."""


@dataclass(slots=True)
class Fault:
    """What shall happen where, and at which pass (1 = the first)."""

    name: str
    action: str
    passes_left: int = 1


def read_fault(text: str) -> Fault | None:
    """Return what `name:action[:nth]` asks for, None for ''. Raises ImproperlyConfigured."""
    if not text:
        return None
    name, _, rest = text.partition(":")
    action, _, nth = rest.partition(":")
    if name not in FAULT_POINTS or action not in ACTIONS or not (nth or "1").isdecimal() or nth == "0":
        wanted = f"one of {', '.join(FAULT_POINTS)}, then :kill, :stop or :raise, then nothing or :1, :2, …"
        raise ImproperlyConfigured(f"FAIRDROP_FAULT must be {wanted}; not {text!r}")
    return Fault(name, action, int(nth or 1))


def marker(name: str) -> str:
    """Return what a process writes to its log before it acts at `name`: the proof that it came that far."""
    return f"fault point {name} reached"


_fault = read_fault(settings.FAULT)


def fault_point(name: str) -> None:
    """Do nothing, unless the environment asks for a fault at `name` and this is the pass it asks for."""
    if _fault is not None and name == _fault.name:
        _pass(_fault)


def _pass(fault: Fault) -> None:
    fault.passes_left -= 1
    if fault.passes_left != 0:
        return
    os.write(2, f"{marker(fault.name)}: {fault.action}\n".encode())
    number = ACTIONS[fault.action]
    if number is None:
        raise FaultRaised(fault.name)
    os.kill(os.getpid(), number)
