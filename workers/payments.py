"""Asks payment providers about refunds that are due and notices that never came; alarms on what stays open.
Never decides what is paid, never waits for a provider twice in a round (shop/payments/recovery.py does the work).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from inventory.states import Reason
from inventory.telemetry.families import family
from shop.payments import recovery
from workers.process_loop import Stopped
from workers.reconciler.report import ALARM, REPAIRED, Drift, log_drifts

# How often it is looked whether something stays open, and told again when it does.
ALARM_SECONDS = 300.0
LEFT_OPEN = "payment_left_open"


class LeftOpenGauge:
    """How many payments were open for too long when it was last looked, recovery.MAX_AT_ONCE at most."""

    count = 0

    def collect(self) -> Iterator[str]:
        """Yield the gauge."""
        text = "Payments that their provider has not answered for days, and failed refunds"
        yield family("fairdrop_payments_left_open", text, samples=[("", self.count)])


GAUGE = LeftOpenGauge()


class PaymentsWorker:
    """One worker; any number may run. stopping: asked before each question; report_alive: called before each."""

    def __init__(self, *, stopping: Callable[[], bool], report_alive: Callable[[], None]) -> None:
        self._stopping = stopping
        self._report_alive = report_alive
        self._looked_at = float("-inf")

    def work_once(self) -> int:
        """Ask what is due; return how many payments came to an end. Raises DatabaseError, Stopped."""
        ended = end_open_payments(before_each=self._go_on)
        log_drifts(ended)
        if time.monotonic() - self._looked_at >= ALARM_SECONDS:
            self._looked_at = time.monotonic()
            alarms = left_open()
            GAUGE.count = len(alarms)
            log_drifts(alarms)
        return len(ended)

    def _go_on(self) -> None:
        if self._stopping():
            raise Stopped
        self._report_alive()


def end_open_payments(*, before_each: Callable[[], object] = lambda: None) -> list[Drift]:
    """Settle what is open between providers and us; return one difference for each kind that there was."""
    ended = recovery.bring_on(before_each=before_each)
    return [
        Drift(kind, "", "payments", f"{count} brought to an end", REPAIRED) for kind, count in ended.items() if count
    ]


def left_open() -> list[Drift]:
    """Return an alarm for each payment that its provider has not answered for days, and for each failed refund."""
    detail = f"open for more than {recovery.MAX_OPEN.days} days: its provider does not answer, or nobody asks it"
    return [
        Drift(LEFT_OPEN, "", reference, f"of request {name}: {why if why == Reason.REFUND_FAILED else detail}", ALARM)
        for reference, name, why in recovery.find_left_open()
    ]
