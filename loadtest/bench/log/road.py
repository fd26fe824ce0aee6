"""Measures what public logs cost the whole road, and how far the notary lags behind the decisions.
Never counts as published what another connection to the database cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from django.db import connection, transaction

from loadtest.bench.gate.admission import ADMITTED
from loadtest.bench.gate.end_to_end import travel, wait_until_decided
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import BenchmarkRun, in_turns, say, say_fields
from loadtest.bench.harness.fixtures import Fixture, faults_of, make_fixture
from loadtest.bench.harness.servers import RunningShop, running_shop
from loadtest.bench.harness.timing import again_and_again, wait_for
from loadtest.bench.load.loader import UNAVAILABLE, ask_evenly, asks_needed
from loadtest.bench.load.payloads import fresh_payloads
from loadtest.bench.log.plan import Plan
from shop.models import Sale
from shop.salelog.changes import IN_ORDER
from shop.salelog.models import Reading, SaleLog
from workers.embedded.child_process import ChildProcess

LOOK_SECONDS = 0.05
MAX_DRAIN_SECONDS = 300.0
LAST_NUMBER = "SELECT last_value FROM shop_orderevent_id_seq"
# Subqueries, not joins: so each look takes the oldest event above the cursor, whatever PostgreSQL knows of the tables.
UNPUBLISHED = """
SELECT extract(epoch FROM clock_timestamp() - e.at)::float8, extract(epoch FROM e.at)::float8
FROM shop_orderevent e
WHERE e.id > (SELECT l.cursor FROM salelog_salelog l WHERE l.sale_id = %(sale_id)s)
  AND (SELECT o.sale_id FROM shop_order o WHERE o.id = e.order_id) = %(sale_id)s
ORDER BY e.id LIMIT 1
"""
DECIDED = """
SELECT extract(epoch FROM max(e.at))::float8, count(DISTINCT o.id)
FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id WHERE o.sale_id = %s
"""


@dataclass(frozen=True, kw_only=True)
class RoadTurn:
    """One turn. kept: with logs. lag_seconds: the longest time that a decision was not published; drain_seconds: how
    long after the last event all were; notary_cpu_us: for one decision."""

    kept: bool
    decided_per_second: float
    lag_seconds: float = 0.0
    drain_seconds: float = 0.0
    notary_cpu_us: float = 0.0
    faults: Sequence[str] = ()


class LagWatch:
    """Looks how old the first event is that a log lacks."""

    def __init__(self, sale_id: int) -> None:
        self._sale_id = sale_id
        self.longest_seconds = 0.0
        self.behind_at = 0.0  # when something was missing last, in s since 1970
        self.is_behind = True

    def look(self) -> None:
        """Look once."""
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(IN_ORDER)  # a look must not be what slows the shop
            cursor.execute(UNPUBLISHED, {"sale_id": self._sale_id})
            row = cursor.fetchone()
        if row is not None:
            self.longest_seconds = max(self.longest_seconds, row[0])
            self.behind_at = row[0] + row[1]
        self.is_behind = row is not None


def measure_road(run: BenchmarkRun[Plan]) -> tuple[list[RoadTurn], RoadTurn]:
    """Return the turns at full pace, with logs and without, and one at an even pace. Raises LoadFailed."""
    plan, turns = run.plan, []
    for number, kept in in_turns((True, False), rounds=plan.road_rounds):
        say(f"The whole road {'with' if kept else 'without'} logs, {plan.road.seconds:g} s")
        turns.append(_turn(run, name=f"road-{number}-{'kept' if kept else 'none'}", kept=kept))
    say(f"The notary at {plan.paced_per_second:,} decisions/s, {plan.road.seconds:g} s")
    return turns, _turn(run, name="road-paced", kept=True, per_second=plan.paced_per_second)


def _turn(run: BenchmarkRun[Plan], *, name: str, kept: bool, per_second: int = 0) -> RoadTurn:
    _leave_out_sales_of_before()
    fixture = make_fixture(name)
    with _shop(run, fixture, kept=kept) as (shop, notary):
        if notary is None:
            rate, faults = _travel(run.plan, fixture, shop)
            return _said(RoadTurn(kept=False, decided_per_second=rate, faults=faults))
        begun = SaleLog.objects.filter(sale_id=fixture.sale_id, size__gt=0)
        wait_for(True, begun.exists, seconds=MAX_DRAIN_SECONDS, what="the notary has published something")
        watch = LagWatch(fixture.sale_id)
        with again_and_again(watch.look, every_seconds=LOOK_SECONDS):
            used = machine.cpu_seconds(notary)
            rate, faults = (
                _walk(run.plan, fixture, shop, per_second=per_second)
                if per_second
                else _travel(run.plan, fixture, shop)
            )
            last_at, decided = machine.one_row(DECIDED, fixture.sale_id)
            wait_for(False, lambda: watch.is_behind, seconds=MAX_DRAIN_SECONDS, what="the log lacks decisions")
            used = machine.cpu_seconds(notary) - used
    published = SaleLog.objects.get(sale_id=fixture.sale_id).ordinal
    if published != decided:
        faults = [*faults, f"{name}: {published:,} of {decided:,} places are in the log"]
    turn = RoadTurn(
        kept=True,
        decided_per_second=rate,
        lag_seconds=watch.longest_seconds,
        drain_seconds=max(0.0, watch.behind_at - last_at),
        notary_cpu_us=used * 1e6 / decided,
        faults=faults,
    )
    return _said(turn)


@contextmanager
def _shop(
    run: BenchmarkRun[Plan], fixture: Fixture, *, kept: bool
) -> Iterator[tuple[RunningShop, ChildProcess | None]]:
    """Run the shop and, where logs are kept, a notary."""
    more = {"FAIRDROP_SALE_LOG": "true" if kept else "false"}
    place = replace(run.place, environment={**run.place.environment, **more})
    with ExitStack() as stack:
        notary = stack.enter_context(place.worker("notary", of=fixture.slug)) if kept else None
        yield stack.enter_context(running_shop(fixture.slug, place=place, stores=run.stores.pairs[0])), notary


def _leave_out_sales_of_before() -> None:
    """Let the next notary begin with the next sale: what it would catch up with first is no lag of it."""
    SaleLog.objects.update(is_kept=False)
    SaleLog.objects.bulk_create(SaleLog(sale=sale, is_kept=False) for sale in Sale.objects.filter(log=None))
    Reading.objects.update(read_to=machine.one_row(LAST_NUMBER)[0])


def _travel(plan: Plan, fixture: Fixture, shop: RunningShop) -> tuple[float, list[str]]:
    """Load the shop as fast as it decides; return decisions a second, and what is wrong."""
    road = travel(fixture, shop, plan.road)
    return road.decided_per_second, road.audit_faults


def _walk(plan: Plan, fixture: Fixture, shop: RunningShop, *, per_second: int) -> tuple[float, list[str]]:
    """Load the shop at an even pace; return admissions a second, and what is wrong. Raises LoadFailed."""
    count = asks_needed(per_second=per_second, window=plan.road)
    payloads = fresh_payloads(fixture.slug, port=shop.web.port, count=count)
    load = ask_evenly(shop.web.port, payloads, per_second=per_second, window=plan.road)
    load.must_be(ADMITTED, of="the shop at an even pace", also=[UNAVAILABLE])
    wait_until_decided(fixture.sku)
    return load.per_second, faults_of(fixture.scope)


def _said(turn: RoadTurn) -> RoadTurn:
    say_fields(turn)
    return turn
