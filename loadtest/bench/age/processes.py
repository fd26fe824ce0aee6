"""Runs one of the shops that are compared: its stores, a hand that works on them, its web process and workers. And
measures its expirer, alone with the stores: how late very many holds end, and what a look costs when there are none.
Never leaves a process behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from loadtest.bench.age import shops
from loadtest.bench.age.plan import Plan
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import say
from loadtest.bench.harness.command import set_up_django
from loadtest.bench.harness.machine import WEB
from loadtest.bench.harness.servers import GATE, WebServer, Workspace, children_of, serving
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.subprocesses import Hand
from workers.embedded.child_process import ChildProcess
from workers.embedded.stores import Servers

WORKERS = ("settler", "expirer", "reconciler", "payments")
# The longest task of a hand is a comparison that takes all of its time.
HAND_SECONDS = 1_800.0
# What is still to be ended after the last hold's time gets so long.
TAIL_SECONDS = 5.0


@dataclass(kw_only=True)
class AgeShop:
    """One shop: its stores, the hand that works on them, and its processes while they run."""

    name: str
    servers: Servers
    place: Workspace
    hand: Hand
    web: WebServer | None = None
    workers: dict[str, ChildProcess] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Return where its web process listens. Raises LoadFailed when it does not run."""
        if self.web is None:
            raise LoadFailed(f"{self.name}: its web process does not run")
        return self.web.port

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time that each process and store has used until now."""
        children = {name: [child] for name, child in self.workers.items()} | children_of(self.servers)
        if self.web is not None:
            children[WEB] = [self.web.child]
        return machine.Crew(children=children).read()

    @contextmanager
    def running(self, *, workers: Sequence[str] = WORKERS, web: bool = True) -> Iterator[None]:
        """Run `workers` and the web process, if it is wanted, for the length of a `with` block."""
        url = self.servers.valkey.url
        with ExitStack() as stack:
            stack.callback(self._forget_processes)
            for name in workers:
                worker = self.place.worker(name, of=f"of {self.name}", redis_url=url)
                self.workers[name] = stack.enter_context(worker)
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


def core_shares(of: Sequence[AgeShop], *, seconds: float) -> list[dict[str, float]]:
    """Return the share of a core that each process and store of each shop uses for so long."""
    began, before = time.monotonic(), [shop.cpu_seconds() for shop in of]
    time.sleep(seconds)
    passed, after = time.monotonic() - began, [shop.cpu_seconds() for shop in of]
    return [{name: (now[name] - then[name]) / passed for name in now} for then, now in zip(before, after, strict=True)]


@contextmanager
def shop_of(name: str, servers: Servers, *, place: Workspace) -> Iterator[AgeShop]:
    """Give the shop on `servers`, with its tables made, for the length of a `with` block."""
    environment = {**place.environment, **servers.environment, "CACHE_URL": servers.valkey.url}
    before = dict(os.environ)
    os.environ |= environment  # what is spawned inherits it
    try:
        hand = Hand(name, redis_url=servers.valkey.url, answer_seconds=HAND_SECONDS)
    finally:
        os.environ |= before
    try:
        hand.ask(set_up_django)
        yield AgeShop(name=name, servers=servers, place=replace(place, environment=environment), hand=hand)
    finally:
        hand.end()


@dataclass(frozen=True, kw_only=True)
class Ends:
    """How late holds ended, in seconds; sweeping: shares of a core before and after many holds had ended."""

    holds: int
    ended: int
    late_p50_seconds: float
    late_p99_seconds: float
    latest_seconds: float
    sweeping: float
    sweeping_after: float


def measure_ends(shop: AgeShop, *, plan: Plan) -> Ends:
    """Let an expirer sweep when nothing is held, again after many holds have ended, and then end many."""
    with _swept(shop, plan=plan) as sweeping:
        pass
    shop.hand.ask(shops.end_without_vacuum, holds=plan.ended_holds)
    with _swept(shop, plan=plan) as after:
        say(f"  sweeping: {sweeping:.2%} of a core, {after:.2%} after {plan.ended_holds:,} holds have ended")
        sale_id, left = shop.hand.ask(shops.write_ending, holds=plan.ending_holds, seconds=plan.ending_seconds)
        time.sleep(left + TAIL_SECONDS)
        holds, ended, p50, p99, latest = shop.hand.ask(shops.lateness, sale_id=sale_id)
    say(f"  {ended:,} of {holds:,} holds ended: p50 {p50:.2f} s late, p99 {p99:.2f} s, the last {latest:.2f} s")
    return Ends(
        holds=holds,
        ended=ended,
        late_p50_seconds=p50,
        late_p99_seconds=p99,
        latest_seconds=latest,
        sweeping=sweeping,
        sweeping_after=after,
    )


@contextmanager
def _swept(shop: AgeShop, *, plan: Plan) -> Iterator[float]:
    """Give the share of a core that an expirer and the stores use, less what the stores use without it.

    The expirer runs for the length of the `with` block.
    """
    with shop.running(workers=[], web=False):
        without = _share_of(shop, seconds=plan.sweep_seconds)
    with shop.running(workers=["expirer"], web=False):
        time.sleep(plan.rest_seconds)
        yield _share_of(shop, seconds=plan.sweep_seconds) - without


def _share_of(shop: AgeShop, *, seconds: float) -> float:
    """Return the share of a core that everything of the shop uses."""
    return sum(core_shares([shop], seconds=seconds)[0].values())
