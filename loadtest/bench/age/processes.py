"""Runs one of the shops that are compared: its stores, a hand that works on them, its web process and workers.
Never leaves a process behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from loadtest.bench.age import shops
from loadtest.bench.harness import processes
from loadtest.bench.harness.command import set_up_django
from loadtest.bench.harness.servers import GATE, Side, Workspace, serving
from loadtest.bench.harness.shares import POSTGRES, REDIS, WEB
from loadtest.bench.load.subprocesses import Hand
from loadtest.bench.load.wire import LoadFailed
from workers.embedded.child_process import ChildProcess
from workers.embedded.stores import Servers

WORKERS = ("settler", "expirer", "reconciler")
# The longest task of a hand is a comparison that takes all of its time.
HAND_SECONDS = 1_800.0
Say = Callable[[str], None]


@dataclass(kw_only=True)
class AgeShop:
    """One shop: its stores, the hand that works on them, and its processes while they run."""

    name: str
    servers: Servers
    place: Workspace
    hand: Hand
    web: Side | None = None
    workers: dict[str, ChildProcess] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Return where its web process listens. Raises LoadFailed when it does not run."""
        if self.web is None:
            raise LoadFailed(f"{self.name}: its web process does not run")
        return self.web.port

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time that each process and store has used until now."""
        children = dict(self.workers)
        if self.web is not None:
            children[WEB] = self.web.child
        stores = {REDIS: self.servers.valkey.child, POSTGRES: self.servers.postgres.child}
        children |= {name: child for name, child in stores.items() if child is not None}
        return {name: processes.cpu_seconds(child) for name, child in children.items()}

    @contextmanager
    def running(self, *, workers: Sequence[str] = WORKERS, web: bool = True) -> Iterator[None]:
        """Run `workers` and the web process, if it is wanted, for the length of a `with` block."""
        url = self.servers.valkey.url
        with ExitStack() as stack:
            stack.callback(self._forget_processes)
            for name in workers:
                child = self.place.child(f"{name} of {self.name}", ["manage.py", "run_worker", name], redis_url=url)
                stack.callback(child.stop)
                self.workers[name] = child.start()
            if web:
                server = serving(f"web of {self.name}", GATE, place=self.place, redis_url=url, slug=shops.LIVE)
                self.web = stack.enter_context(server)
            yield

    def stop_workers(self) -> None:
        """Stop the workers; the web process stays."""
        for child in self.workers.values():
            child.stop()
        self.workers.clear()

    def _forget_processes(self) -> None:
        self.web = None
        self.workers.clear()


@contextmanager
def shop_of(name: str, servers: Servers, *, place: Workspace) -> Iterator[AgeShop]:
    """Give the shop on `servers`, with its tables made, for the length of a `with` block."""
    environment = {**place.environment, **servers.environment, "CACHE_URL": servers.valkey.url}
    here = Workspace(checkout=place.checkout, environment=environment, folder=place.folder)
    before = dict(os.environ)
    os.environ |= environment  # what is spawned inherits it
    try:
        hand = Hand(name, redis_url=servers.valkey.url, answer_seconds=HAND_SECONDS)
    finally:
        os.environ |= before
    try:
        hand.ask(set_up_django)
        yield AgeShop(name=name, servers=servers, place=here, hand=hand)
    finally:
        hand.end()
