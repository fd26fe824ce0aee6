"""Gives a crash test a shop with both stores of its own, its workers by name, and reconcilers to ask.
Never harms the servers that the other tests share, never leaves a process running.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from inventory.fault_injection import marker
from inventory.redis import keys
from tests.support import road
from tests.support.crashes.extra_shop import ALL_TABLES, OwnStore, own_postgres, own_valkey
from tests.support.servers.shop_processes import running_process
from tests.support.shopkeeping import shop_of
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess
from workers.management.commands.reconcile import run

# Works, and takes no Redis for one that is away because the machine stopped it for a moment.
PATIENT_WORKER = """
from workers.management.commands import run_worker
for what in ("BEAT", "CLOCK", "LOOK", "WORK"):
    setattr(run_worker, f"{what}_TIMEOUT_SECONDS", 60)
"""


@contextmanager
def worker_process(
    worker: str,
    environment: Mapping[str, str],
    *,
    folder: Path,
    name: str = "",
    program: Sequence[str] = ("manage.py",),
) -> Iterator[ChildProcess]:
    """Run `manage.py run_worker <worker>` with its log in `folder`; program: what Python runs instead of manage.py."""
    command = [sys.executable, *program, "run_worker", worker]
    with running_process(name or worker, command, environment=environment, folder=folder) as child:
        yield child


@dataclass(frozen=True)
class OwnStores:
    """Both stores, and the environment of processes that work on them."""

    postgres: OwnStore
    valkey: OwnStore
    environment: dict[str, str]


@dataclass
class WorkerShop:
    """Both stores, and the workers that a test starts; all end with the test."""

    postgres: OwnStore
    valkey: OwnStore
    environment: dict[str, str]
    folder: Path
    running: ExitStack
    started: list[ChildProcess] = field(default_factory=list)

    def start(self, worker: str, *, name: str = "", fault: str = "") -> ChildProcess:
        """Start a worker and return when it works; fault: what it meets (see inventory/fault_injection.py)."""
        environment = {**self.environment, "FAIRDROP_FAULT": fault}
        child = self.running.enter_context(worker_process(worker, environment, folder=self.folder, name=name))
        wait_until(lambda: "worker_started" in self.log_of(child), what=f"the {worker} starts")
        self.started.append(child)
        return child

    def assert_all_run(self) -> None:
        """Fail unless every worker has lived through what happened."""
        for child in self.started:
            assert child.running, self.log_of(child)

    def log_of(self, child: ChildProcess) -> str:
        """Return what a worker has written."""
        assert child.log_path is not None
        return child.log_path.read_text()

    def wait_until_struck(self, child: ChildProcess, point: str) -> None:
        """Return when `child` has reached `point`: what follows is its fault."""
        wait_until(lambda: marker(point) in self.log_of(child), what=f"{point} is reached")


@contextmanager
def own_stores(
    environment: Mapping[str, str], *, folder: Path, targets: Sequence[Sequence[str]] = ALL_TABLES
) -> Iterator[OwnStores]:
    """Run a PostgreSQL and a Valkey for the length of a block; targets: as own_postgres."""
    with own_valkey(folder) as valkey:
        own = {**environment, "REDIS_URL": valkey.url, "CACHE_URL": valkey.url}
        with own_postgres(environment=own, targets=targets) as postgres:
            yield OwnStores(postgres, valkey, {**own, "DATABASE_URL": postgres.url})


@contextmanager
def worker_shop(stores: OwnStores, *, folder: Path) -> Iterator[WorkerShop]:
    """Let this process work on `stores`; what is started ends with the block."""
    with shop_of(stores.environment), ExitStack() as running:
        yield WorkerShop(stores.postgres, stores.valkey, stores.environment, folder, running)


def freeze(child: ChildProcess) -> None:
    """Stop a process where it is."""
    os.kill(child.pid, signal.SIGSTOP)


def freeze_at_rest(settler: ChildProcess, *skus: str) -> None:
    """Stop a settler while it works on none of these lines: what it has in hand nobody sees waiting."""

    def rests() -> bool:
        freeze(settler)
        wait_until(lambda: psutil.Process(settler.pid).status() == psutil.STATUS_STOPPED, what="it is stopped")
        in_hand = road.run(*(("EXISTS", make(sku)) for sku in skus for make in (keys.lock, keys.in_flight)))
        if any(in_hand):
            wake(settler)
        return not any(in_hand)

    wait_until(rests, what="the settler works elsewhere")


def wake(child: ChildProcess) -> None:
    """Let a frozen process go on."""
    os.kill(child.pid, signal.SIGCONT)


def drifts(slug: str) -> list[dict[str, Any]]:
    """Return every difference that a reconciler would find now; nothing is changed."""
    return run(sale=slug, repair=False)["drifts"]
