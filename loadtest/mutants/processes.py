"""Runs the shop's processes for one mutant run: web, workers, and settlers that each meet a fault of their own.
Never restarts what was killed, never leaves one behind.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadtest.mutants.watching import RunSpoiled, seen_within
from workers.demo.steps import wait_for_web
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import free_port

CHECKOUT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 5.0
STARTED = "worker started"
NOTARY = ("manage.py", "run_worker", "notary")
# Each settler, and what it meets (inventory/fault_injection.py); with the first batch, if anything.
SLEEPER, TAKER, TELLER = "sleeper", "taker", "teller"
HEALTHY = ("healthy-1", "healthy-2")
FAULTS = {SLEEPER: "after_take:stop", TAKER: "after_take:kill", TELLER: "after_commit:kill"}


@dataclass(frozen=True, kw_only=True)
class Processes:
    """The running shop. settlers: by name; notary: publishes from the start; next_notary: starts another one."""

    port: int
    settlers: Mapping[str, ChildProcess]
    notary: ChildProcess
    next_notary: Callable[[], object]
    folder: Path

    @property
    def url(self) -> str:
        """The shop's address."""
        return f"http://127.0.0.1:{self.port}"

    def freeze(self, *names: str) -> None:
        """Stop settlers where they are."""
        for name in names:
            os.kill(self.settlers[name].pid, signal.SIGSTOP)

    def wake(self, *names: str) -> None:
        """Let settlers go on."""
        for name in names:
            os.kill(self.settlers[name].pid, signal.SIGCONT)

    def kill_notary(self) -> None:
        """End the notary wherever it is."""
        os.kill(self.notary.pid, signal.SIGKILL)

    def has_said(self, name: str, text: str) -> bool:
        """Say whether `text` is in the log of a settler or the notary."""
        return text in (self.folder / f"{name}.log").read_text()


@contextmanager
def running(environment: Mapping[str, str], *, folder: Path) -> Iterator[Processes]:
    """Run web, workers and settlers for the length of a block; the settlers are frozen with nothing in hand."""
    with ExitStack() as stack:

        def child(name: str, *arguments: str, fault: str = "") -> ChildProcess:
            process = ChildProcess(
                name=name,
                arguments=[sys.executable, *arguments],
                environment={**environment, "FAIRDROP_FAULT": fault},
                folder=CHECKOUT,
                log_path=folder / f"{name}.log",
                stop_timeout_seconds=STOP_SECONDS,
            ).start()
            stack.callback(process.stop)
            return process

        port = free_port()
        web = child("web", "manage.py", "run_web", "--port", str(port))
        for worker in ("expirer", "payments", "reconciler", "sandbox"):
            child(worker, "manage.py", "run_worker", worker)
        notary = child("notary", *NOTARY)
        names = (*FAULTS, *HEALTHY)
        settlers = {
            name: child(name, "manage.py", "run_worker", "settler", fault=FAULTS.get(name, "")) for name in names
        }
        start_next = partial(child, "next-notary", *NOTARY)
        shop = Processes(port=port, settlers=settlers, notary=notary, next_notary=start_next, folder=folder)
        # A stopped process would keep our signal to end for later.
        stack.callback(shop.wake, *HEALTHY, SLEEPER)
        wait_for_web(web, port=port, stopping=lambda: False)
        # The notary too: what waits for its first leaves would keep the settlers until nobody asks any more.
        for name in (*names, notary.name):
            if not seen_within(START_SECONDS, lambda name=name: shop.has_said(name, STARTED)):  # type: ignore[misc]
                raise RunSpoiled(f"{name} did not start; see {folder / name}.log")
        shop.freeze(*names)
        yield shop
