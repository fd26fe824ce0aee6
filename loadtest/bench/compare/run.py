"""Measures every side, one after the other: selling without end, then selling out. Never judges what it finds.
Needs Django to be set up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from loadtest.bench.compare.costs import cpu_seconds, read_costs
from loadtest.bench.compare.crowd import ACCEPTED, BUSY, SOLD_OUT, CompareCrowd, CompareVisit
from loadtest.bench.compare.payloads import Wishes, make_wishes
from loadtest.bench.compare.plan import Plan
from loadtest.bench.compare.sides import Competitor, RivalSide, Running, ShopSide
from loadtest.bench.harness.servers import Workspace
from loadtest.rivals.strategies import RIVALS
from workers.embedded.child_process import ChildProcess

Say = Callable[[str], None]
# More wishes a second than a side can take: it must never run dry.
RIVAL_WISHES, SHOP_WISHES = 4_000, 18_000
LOOK_SECONDS = 0.02
FORESEEN = ACCEPTED | {BUSY, SOLD_OUT}
# Nobody is decided any more when nothing changed for so long.
STILL_SECONDS = 4.0
# Each count is a commit as well, so there must be few.
COUNT_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Waits:
    """What some waits came to, in ms; not a number when there were none."""

    p50: float
    p99: float
    most: float


@dataclass(frozen=True, kw_only=True)
class Selling:
    """What selling without end came to. commits, commands: an order; CPU in ms an order."""

    clicks_per_second: float
    settled_per_second: float
    admission: Waits
    commits: float
    commands: float
    seller_cpu_ms: float
    store_cpu_ms: float

    @property
    def cpu_ms(self) -> float:
        """CPU of sellers and stores, in ms an order."""
        return self.seller_cpu_ms + self.store_cpu_ms


@dataclass(frozen=True, kw_only=True)
class SellingOut:
    """What selling out came to. asked_all: whether every wish was asked in time."""

    clicks_per_second: float
    units: int
    orders: int
    accepted: int
    refused: int
    lost: int
    unanswered: int
    asked_all: bool
    admission: Waits
    decision: Waits

    @property
    def oversold(self) -> int:
        """Orders above the units."""
        return max(0, self.orders - self.units)

    @property
    def undersold(self) -> int:
        """Units that nobody has although somebody was told sold out."""
        return max(0, self.units - self.orders) if self.refused else 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """All about one side."""

    name: str
    title: str
    correct: bool
    selling: Selling
    selling_out: SellingOut
    faults: list[str]


def measure_all(plan: Plan, *, place: Workspace, stores: Sequence[ChildProcess], say: Say) -> list[Result]:
    """Measure every rival, then Fairdrop. Raises LoadFailed, ServerFailed."""
    sides: list[Competitor] = [*(RivalSide(rival) for rival in RIVALS.values()), ShopSide()]
    return [measure(side, plan=plan, place=place, stores=stores, say=say) for side in sides]


def measure(side: Competitor, *, plan: Plan, place: Workspace, stores: Sequence[ChildProcess], say: Say) -> Result:
    """Measure one side: both runs with processes and a sale of their own."""
    selling, faults = sell(side, plan=plan, place=place, stores=stores)
    selling_out, more_faults = sell_out(side, plan=plan, place=place)
    say(
        f"{side.title:<28} {selling.settled_per_second:>8,.0f} settled/s   oversold {selling_out.oversold:>5,}   "
        f"undersold {selling_out.undersold:>4,}   lost {selling_out.lost:>4,}"
    )
    return Result(
        name=side.name,
        title=side.title,
        correct=side.correct,
        selling=selling,
        selling_out=selling_out,
        faults=[*faults, *more_faults],
    )


def sell(
    side: Competitor, *, plan: Plan, place: Workspace, stores: Sequence[ChildProcess]
) -> tuple[Selling, list[str]]:
    """Sell a stock without end for the seconds of the plan."""
    sale = f"{side.name}-without-end"
    side.prepare(sale, units=plan.units)
    before = read_costs(stores)
    with side.running(sale, place=place) as running:
        seconds = plan.seconds + plan.warm_up_seconds
        most = SHOP_WISHES if isinstance(side, ShopSide) else RIVAL_WISHES
        wishes = _wishes(side, sale, running, count=int(most * seconds), plan=plan)
        used = cpu_seconds(running.children)
        crowd = CompareCrowd(
            wishes,
            port=running.port,
            connections=plan.connections,
            may_ask=Rest(side, sale, plan.undecided).may_ask,
        )
        visit = crowd.visit(seconds=plan.seconds, warm_up_seconds=plan.warm_up_seconds)
        lost = wait_until_decided(side, sale, accepted=visit.accepted)
        used = cpu_seconds(running.children) - used
    after, orders = read_costs(stores), side.tally(sale).orders
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (visit.began_at, visit.began_at + visit.seconds))
    return Selling(
        clicks_per_second=visit.clicks / visit.seconds,
        settled_per_second=side.settled_between(sale, begin=begin, end=end) / visit.seconds,
        admission=waits_of(visit.admissions),
        commits=(after.commits - before.commits) / max(1, orders),
        commands=(after.commands - before.commands) / max(1, orders),
        seller_cpu_ms=used * 1000 / max(1, orders),
        store_cpu_ms=(after.store_cpu - before.store_cpu) * 1000 / max(1, orders),
    ), [*_unforeseen(side, visit), *([f"{side.title}: {lost} lost while selling"] if lost else []), *side.faults(sale)]


def sell_out(side: Competitor, *, plan: Plan, place: Workspace) -> tuple[SellingOut, list[str]]:
    """Sell a few units to many who come at once."""
    sale = f"{side.name}-sold-out"
    side.prepare(sale, units=plan.sold_out_units)
    with side.running(sale, place=place) as running:
        wishes = _wishes(side, sale, running, count=plan.sold_out_wishes, plan=plan)
        crowd = CompareCrowd(wishes, port=running.port, connections=plan.connections, follow=2)
        visit = crowd.visit(seconds=plan.sold_out_seconds, until_all_asked=True)
        side.close(sale)
        lost = wait_until_decided(side, sale, accepted=visit.accepted)
    tally = side.tally(sale)
    return SellingOut(
        clicks_per_second=visit.clicks / visit.seconds,
        units=tally.units,
        orders=tally.orders,
        accepted=visit.accepted,
        # Some are told at once, some by the decision that a worker wrote for them.
        refused=visit.refused + tally.decided - tally.orders,
        lost=lost,
        unanswered=visit.unanswered,
        asked_all=visit.asked_all,
        admission=waits_of(visit.admissions),
        decision=waits_of(visit.decisions),
    ), [*_unforeseen(side, visit), *side.faults(sale)]


class Rest:
    """Says whether one more may click: whether few enough wait to be decided."""

    def __init__(self, side: Competitor, sale: str, most: int) -> None:
        self._side, self._sale, self._most = side, sale, most
        self._waiting, self._looked_at = 0, 0.0

    def may_ask(self, now: float) -> bool:
        """Say so."""
        if now - self._looked_at >= LOOK_SECONDS:
            self._waiting, self._looked_at = self._side.waiting(self._sale), now
        return self._waiting < self._most


def wait_until_decided(side: Competitor, sale: str, *, accepted: int) -> int:
    """Return how many of the accepted are still undecided when nothing changes any more."""
    decided, changed_at = side.tally(sale).decided, time.monotonic()
    while decided < accepted and time.monotonic() - changed_at < STILL_SECONDS:
        time.sleep(COUNT_SECONDS)
        seen = side.tally(sale).decided
        if seen != decided:
            decided, changed_at = seen, time.monotonic()
    return max(0, accepted - decided)


def waits_of(waits: Sequence[float]) -> Waits:
    """Return the middle, the worst but for one in a hundred, and the worst."""
    if not waits:
        return Waits(p50=float("nan"), p99=float("nan"), most=float("nan"))
    ordered = sorted(waits)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return Waits(p50=statistics.median(ordered), p99=p99, most=ordered[-1])


def _wishes(side: Competitor, sale: str, running: Running, *, count: int, plan: Plan) -> Wishes:
    return make_wishes(side.address(sale), port=running.port, count=count, repeated=plan.repeated, seed=plan.seed)


def _unforeseen(side: Competitor, visit: CompareVisit) -> list[str]:
    """Return a fault for answers that are neither yes, nor sold out, nor busy, and for none at all from the shop."""
    other = {status: count for status, count in visit.statuses.items() if status not in FORESEEN}
    found = [f"{side.title} answered {other}"] if other else []
    if visit.unanswered and isinstance(side, ShopSide):
        found.append(f"{side.title} left {visit.unanswered} clicks without an answer")
    return found
