"""Measures a shop without a past alongside an old one, in pairs of rounds, and what only one of them can show.
Never leaves a slow round out. Never leaves a process behind.
"""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from loadtest.bench.age import past, shops
from loadtest.bench.age.ends import Ends, measure_ends
from loadtest.bench.age.plan import WARM_UP_SECONDS, Plan
from loadtest.bench.age.processes import WORKERS, AgeShop, Say
from loadtest.bench.harness import machine
from loadtest.bench.harness.rounds import in_turns
from loadtest.bench.harness.shares import WEB
from loadtest.bench.load.loader import HOST, Load, Loader
from loadtest.bench.load.pace import Pace
from loadtest.bench.load.payloads import fresh_wishes
from loadtest.bench.load.wire import LoadFailed
from loadtest.bench.settle.bounds import quantile

ADMITTED, REFUSED = "202", "409"
YOUNG, OLD = "no past", "old"
PROCESSES = (WEB, *WORKERS)
CONNECTIONS = 16
# Decisions are watched for so much longer than asks are sent.
TAIL_SECONDS = 1.0
LIST_READS = 50


@dataclass(frozen=True, kw_only=True)
class AgeRound:
    """One round of one shop. Waits in ms: to the 202, and from the place in line to the committed decision."""

    side: str
    decided: int
    told_p50_ms: float
    decided_p50_ms: float
    decided_p99_ms: float
    cpu_us: float
    list_bytes: int
    list_ms: float
    metrics_bytes: int
    looks_ms: Mapping[str, Sequence[float]] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Large:
    """A live sale with many records. share: of a core, all processes and stores; round_seconds: NaN when never over."""

    records: int
    round_seconds: float
    share: float
    drifts: int


@dataclass(frozen=True, kw_only=True)
class Results:
    """pairs: (no past, old); idle: shares of a core by process, of each pair and shop; stolen: of all CPU time."""

    pairs: Sequence[tuple[AgeRound, AgeRound]]
    idle: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]
    from_memory: Mapping[str, float]
    retired_bytes: tuple[int, int]
    spread: Sequence[tuple[float, float]]
    large: Large
    ends: Ends
    stolen: float


def measure_all(plan: Plan, young: AgeShop, old: AgeShop, *, say: Say) -> Results:
    """Measure everything. Raises LoadFailed, ServerFailed."""
    stolen = machine.Stolen()
    say(f"A past of {plan.past_sales:,} sales, {plan.past_orders:,} orders, {plan.past_payments:,} payments")
    old.hand.ask(
        past.write_past,
        sales=plan.past_sales,
        orders=plan.past_orders,
        payments=plan.past_payments,
    )
    retired = old.hand.ask(shops.retired_bytes, holds=plan.retired_holds)
    say(f"  Redis had {retired[0]:,} bytes of a SKU, and {retired[1]:,} after its sale was retired")
    for shop in (young, old):
        shop.hand.ask(shops.make_live_sales)
    with young.running(), old.running():
        time.sleep(plan.rest_seconds)
        pairs, idle = measure_pairs(young, old, plan=plan, say=say)
        from_memory = {shop.name: share_from_memory(shop, plan=plan, say=say) for shop in (young, old)}
    spread = young.hand.ask(
        shops.settle_spread, asks=plan.spread_asks, skus=plan.spread_skus, rounds=plan.spread_rounds
    )
    for one, many in spread:
        say(f"  settled in one SKU {one:,.0f}/s, in {plan.spread_skus:,} SKUs {many:,.0f}/s")
    # Last of all: it leaves a million dead entries in the other shop, and a table that no vacuum comes upon.
    large, ends = measure_large(old, plan=plan, say=say, alongside=lambda: measure_ends(young, plan=plan, say=say))
    return Results(
        pairs=pairs,
        idle=idle,
        from_memory=from_memory,
        retired_bytes=retired,
        spread=spread,
        large=large,
        ends=ends,
        stolen=stolen.share(),
    )


def measure_pairs(
    young: AgeShop, old: AgeShop, *, plan: Plan, say: Say
) -> tuple[list[tuple[AgeRound, AgeRound]], list[tuple[dict[str, float], dict[str, float]]]]:
    """Measure both shops in turns; after each pair of rounds both are idle together."""
    found: dict[str, list[AgeRound]] = {YOUNG: [], OLD: []}
    idle = []
    for number, shop in in_turns((young, old), rounds=plan.pairs):
        found[shop.name].append(one_round(shop, plan=plan))
        say(_line(found[shop.name][-1]))
        if len(found[YOUNG]) == len(found[OLD]) == number + 1:
            idle.append(idle_shares(young, old, plan=plan))
            say(f"  idle, old: {', '.join(f'{name} {share:.1%}' for name, share in idle[-1][1].items())}")
    return list(zip(found[YOUNG], found[OLD], strict=True)), idle


def one_round(shop: AgeShop, *, plan: Plan) -> AgeRound:
    """Ask at an even pace while the hand watches what is committed. Raises LoadFailed."""
    watched = plan.seconds + WARM_UP_SECONDS + TAIL_SECONDS
    wishes = fresh_wishes(shops.LIVE, port=shop.port, count=_count(plan))
    before = shop.cpu_seconds()
    with ThreadPoolExecutor(max_workers=1) as pool:
        watching = pool.submit(shop.hand.ask, shops.watch_decisions, seconds=watched)
        load = ask(shop, wishes, allowed={ADMITTED}, plan=plan)
        decisions = watching.result()
    after = shop.cpu_seconds()
    waits = [wait for at, wait in decisions if load.began_at <= at < load.began_at + load.seconds]
    listed, list_ms = read_list(shop)
    return AgeRound(
        side=shop.name,
        decided=len(waits),
        told_p50_ms=load.wait_ms(0.5),
        decided_p50_ms=quantile(waits, 0.5),
        decided_p99_ms=quantile(waits, 0.99),
        cpu_us=sum(after[name] - before[name] for name in after) * 1_000_000 / max(1, len(decisions)),
        list_bytes=listed,
        list_ms=list_ms,
        metrics_bytes=len(read(shop, "/metrics")),
        looks_ms=shop.hand.ask(shops.looks_ms),
    )


def _count(plan: Plan) -> int:
    return int(plan.asks_per_second * (plan.seconds + WARM_UP_SECONDS) * 1.2) + 100


def ask(shop: AgeShop, wishes: list[bytes], *, allowed: set[str], plan: Plan) -> Load:
    """Send `wishes` at an even pace; any answer that is not `allowed` fails the run."""
    loader = Loader(shop.port, connections=CONNECTIONS, may_send=Pace(plan.asks_per_second).may_send)
    load = loader.run(wishes, seconds=plan.seconds, warm_up_seconds=WARM_UP_SECONDS)
    if not set(load.statuses) <= allowed:
        raise LoadFailed(f"{shop.name}: purchases were answered {dict(load.statuses)}, not {sorted(allowed)}")
    return load


def read_list(shop: AgeShop) -> tuple[int, float]:
    """Return the bytes of the list of sales, and the middle of the ms it took."""
    connection = http.client.HTTPConnection(HOST, shop.port, timeout=10)
    took = []
    for _ in range(LIST_READS):
        began = time.perf_counter()
        connection.request("GET", "/api/v1/sales")
        body = connection.getresponse().read()
        took.append((time.perf_counter() - began) * 1000)
    connection.close()
    return len(body), statistics.median(took)


def read(shop: AgeShop, path: str) -> bytes:
    """Return the body of a page. Raises LoadFailed when it is not there."""
    connection = http.client.HTTPConnection(HOST, shop.port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise LoadFailed(f"{shop.name}: {path} was answered {answer.status}")
    return body


def idle_shares(young: AgeShop, old: AgeShop, *, plan: Plan) -> tuple[dict[str, float], dict[str, float]]:
    """Return the share of a core that each process of both shops uses while nobody asks."""
    time.sleep(TAIL_SECONDS)
    began, before = time.monotonic(), [shop.cpu_seconds() for shop in (young, old)]
    time.sleep(plan.idle_seconds)
    passed, after = time.monotonic() - began, [shop.cpu_seconds() for shop in (young, old)]
    first, second = (
        {name: (now[name] - then[name]) / passed for name in now} for then, now in zip(before, after, strict=True)
    )
    return first, second


def share_from_memory(shop: AgeShop, *, plan: Plan, say: Say) -> float:
    """Return the share of sold-out answers for which Redis ran no script; the workers, which run some, are stopped."""
    wishes = fresh_wishes(shops.GONE, port=shop.port, count=2 * _count(plan))
    half = len(wishes) // 2
    shop.stop_workers()
    calls = [shop.hand.ask(shops.script_calls)]
    # The first ones fill what room is left; from then on the process knows everybody in line.
    ask(shop, wishes[:half], allowed={ADMITTED, REFUSED}, plan=plan)
    calls.append(shop.hand.ask(shops.script_calls))
    if calls[1] == calls[0]:
        raise LoadFailed(f"{shop.name}: buyers were let in, and Redis counts no script call")
    time.sleep(TAIL_SECONDS)
    load = ask(shop, wishes[half:], allowed={REFUSED}, plan=plan)
    calls.append(shop.hand.ask(shops.script_calls))
    answers, leaked = sum(load.statuses.values()), calls[2] - calls[1]
    say(f"  {shop.name}: {answers:,} sold-out answers, {leaked} script calls; {calls[1] - calls[0]} before")
    return 1 - min(leaked, answers) / answers


def measure_large(shop: AgeShop, *, plan: Plan, say: Say, alongside: Callable[[], Ends]) -> tuple[Large, Ends]:
    """Fill a live sale; measure all processes and stores from one comparison of it to the next.

    alongside: what is measured in the other shop meanwhile, for a comparison takes minutes and little of a core.
    """
    say(f"A live sale with {plan.large_records:,} records")
    records = shop.hand.ask(shops.fill_large_sale, records=plan.large_records)
    # The hand is the reconciler: it alone knows when a comparison of one SKU begins and ends.
    with (
        shop.running(workers=[name for name in WORKERS if name != "reconciler"]),
        ThreadPoolExecutor(max_workers=1) as pool,
    ):
        time.sleep(plan.rest_seconds)
        began, before = time.monotonic(), shop.cpu_seconds()
        comparing = pool.submit(_compare_large, shop, plan=plan)
        ends = alongside()
        (seconds, drifts, own), ended, after = comparing.result()
    passed = ended - began
    share = (sum(after[name] - before[name] for name in after) + own) / passed
    found = Large(
        records=records, round_seconds=float("nan") if seconds is None else seconds, share=share, drifts=drifts
    )
    say(
        f"  compared in {found.round_seconds:.1f} s; everything together uses {share:.1%} of a core over {passed:.0f} s"
    )
    return found, ends


def _compare_large(shop: AgeShop, *, plan: Plan) -> tuple[tuple[float | None, int, float], float, dict[str, float]]:
    """Return what the hand says of its comparison, when it was over, and the CPU seconds of the processes then."""
    said = shop.hand.ask(shops.reconcile_large_sale, longest_seconds=plan.longest_round_seconds)
    return said, time.monotonic(), shop.cpu_seconds()


def _line(each: AgeRound) -> str:
    return (
        f"{each.side:>8}: {each.decided:,} decided, p50 {each.decided_p50_ms:.1f} ms, p99 {each.decided_p99_ms:.1f} ms"
        f", {each.cpu_us:,.0f} µs CPU each; list {each.list_bytes:,} bytes in {each.list_ms:.2f} ms"
    )
