"""Measures a shop without a past alongside an old one, in pairs of rounds, and what only one of them can show.
Never leaves a slow round out. Never leaves a process behind.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from loadtest.bench.age import past, shops
from loadtest.bench.age.plan import FULL, METHOD, QUICK, Plan
from loadtest.bench.age.processes import WORKERS, AgeShop, Ends, core_shares, measure_ends, shop_of
from loadtest.bench.age.report import OLD, YOUNG, AgeRound, Large, Results, figures_of, samples_of
from loadtest.bench.gate.admission import ADMITTED, REFUSED
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, in_turns, say, say_fields
from loadtest.bench.harness.report import quantile
from loadtest.bench.harness.servers import kept_connection, read_page
from loadtest.bench.load.loader import Load, ask_evenly
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import fresh_payloads
from shop.web.my_tickets import ORDERS_PER_PAGE

# Decisions are watched for so much longer than asks are sent.
TAIL_SECONDS = 1.0
PAGE_READS = 50


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Measure a shop without a past and an old one. Raises LoadFailed, ServerFailed."""
    with (
        shop_of(YOUNG, run.stores.pairs[0], place=run.place) as young,
        shop_of(OLD, run.stores.pairs[1], place=run.place) as old,
    ):
        stolen = machine.Stolen()
        results = measure_all(run.plan, young, old)
        share = stolen.share()
    return Findings(
        figures=figures_of(results, plan=run.plan),
        facts={"Hardware": {**run.hardware, "CPU time stolen during the run": f"{share:.1%}"}},
        samples=samples_of(results),
    )


def measure_all(plan: Plan, young: AgeShop, old: AgeShop) -> Results:
    """Write the past of the old shop, then measure everything."""
    say(f"A past of {plan.past_sales:,} sales, {plan.past_orders:,} orders, {plan.past_payments:,} payments")
    past_size = {"sales": plan.past_sales, "orders": plan.past_orders, "payments": plan.past_payments}
    old.hand.ask(past.write_past, **past_size)
    retired = old.hand.ask(shops.retired_bytes, holds=plan.retired_holds)
    say(f"  Redis had {retired[0]:,} bytes of a SKU, and {retired[1]:,} after its sale was retired")
    for shop in (young, old):
        shop.hand.ask(shops.make_live_sales)
    with young.running(), old.running():
        time.sleep(plan.rest_seconds)
        pairs, idle = measure_pairs(young, old, plan=plan)
        tickets_ms = my_tickets_ms(old)
        metrics_ms = young.hand.ask(shops.metrics_ms, sales=plan.metrics_sales)
        from_memory = {shop.name: share_from_memory(shop, plan=plan) for shop in (young, old)}
    spread = young.hand.ask(
        shops.settle_spread, asks=plan.spread_asks, skus=plan.spread_skus, rounds=plan.spread_rounds
    )
    for one, many in spread:
        say(f"  settled in one SKU {one:,.0f}/s, in {plan.spread_skus:,} SKUs {many:,.0f}/s")
    # Last of all: it leaves a million dead entries in the other shop, and a table that no vacuum comes upon.
    large, ends = measure_large(old, plan=plan, alongside=lambda: measure_ends(young, plan=plan))
    return Results(
        pairs=pairs,
        idle=idle,
        my_tickets_ms=tickets_ms,
        metrics_ms=metrics_ms,
        from_memory=from_memory,
        retired_bytes=retired,
        spread=spread,
        large=large,
        ends=ends,
    )


def measure_pairs(
    young: AgeShop, old: AgeShop, *, plan: Plan
) -> tuple[list[tuple[AgeRound, AgeRound]], list[tuple[dict[str, float], dict[str, float]]]]:
    """Measure both shops in turns; after each pair of rounds both are idle together."""
    found: dict[str, list[AgeRound]] = {YOUNG: [], OLD: []}
    idle = []
    for number, shop in in_turns((young, old), rounds=plan.pairs):
        found[shop.name].append(one_round(shop, plan=plan))
        say_fields(found[shop.name][-1])
        if len(found[YOUNG]) == len(found[OLD]) == number + 1:
            idle.append(idle_shares(young, old, plan=plan))
            say(f"  idle, old: {', '.join(f'{name} {share:.1%}' for name, share in idle[-1][1].items())}")
    return list(zip(found[YOUNG], found[OLD], strict=True)), idle


def one_round(shop: AgeShop, *, plan: Plan) -> AgeRound:
    """Ask at an even pace while the hand watches what is committed. Raises LoadFailed."""
    watched = plan.window.whole_seconds + TAIL_SECONDS
    payloads = fresh_payloads(shops.LIVE, port=shop.port, count=plan.asks)
    before = shop.cpu_seconds()
    with ThreadPoolExecutor(max_workers=1) as pool:
        watching = pool.submit(shop.hand.ask, shops.watch_decisions, seconds=watched)
        load = ask(shop, payloads, status=ADMITTED, plan=plan)
        decisions = watching.result()
    after = shop.cpu_seconds()
    waits = [wait for at, wait in decisions if load.began_at <= at < load.began_at + load.seconds]
    listed, list_ms = read_often(shop, "/api/v1/sales")
    with kept_connection(shop.port) as connection:
        metrics, _ = read_page(connection, "/metrics", headers={})
    return AgeRound(
        side=shop.name,
        decided=len(waits),
        told_p50_ms=quantile(load.waits_ms, 0.5),
        decided_p50_ms=quantile(waits, 0.5),
        decided_p99_ms=quantile(waits, 0.99),
        cpu_us=sum(after[name] - before[name] for name in after) * 1_000_000 / max(1, len(decisions)),
        list_bytes=len(listed),
        list_ms=list_ms,
        metrics_bytes=len(metrics),
        looks_ms=shop.hand.ask(shops.looks_ms),
    )


def ask(shop: AgeShop, payloads: list[bytes], *, status: str, also: str = "", plan: Plan) -> Load:
    """Send `payloads` at an even pace; any answer but `status`, or what is allowed `also`, fails the run."""
    load = ask_evenly(shop.port, payloads, per_second=plan.asks_per_second, window=plan.window)
    load.must_be(status, of=f"{shop.name}: the shop", also=[also])
    return load


def my_tickets_ms(shop: AgeShop) -> float:
    """Return the middle of the ms that My tickets took a buyer of the past. Raises LoadFailed without a full page."""
    token = shop.hand.ask(shops.token_of_old_buyer)
    body, took_ms = read_often(shop, "/tickets/", cookie=f"buyer={token}")
    listed = body.count(b'href="/requests/')
    if listed < ORDERS_PER_PAGE:
        raise LoadFailed(f"{shop.name}: My tickets lists {listed} orders")
    say(f"  My tickets in {took_ms:.1f} ms")
    return took_ms


def read_often(shop: AgeShop, path: str, *, cookie: str = "") -> tuple[bytes, float]:
    """Return the body of a page that is read again and again, and the middle of the ms it took."""
    headers = {"Cookie": cookie} if cookie else {}
    with kept_connection(shop.port) as connection:
        read = [read_page(connection, path, headers=headers) for _ in range(PAGE_READS)]
    return read[-1][0], statistics.median(took_ms for _, took_ms in read)


def idle_shares(young: AgeShop, old: AgeShop, *, plan: Plan) -> tuple[dict[str, float], dict[str, float]]:
    """Return the share of a core that each process of both shops uses while nobody asks."""
    time.sleep(TAIL_SECONDS)
    first, second = core_shares([young, old], seconds=plan.idle_seconds)
    return first, second


def share_from_memory(shop: AgeShop, *, plan: Plan) -> float:
    """Return the share of sold-out answers for which Redis ran no script; the workers, which run some, are stopped."""
    payloads = fresh_payloads(shops.GONE, port=shop.port, count=2 * plan.asks)
    half = len(payloads) // 2
    shop.stop_workers()
    calls = [shop.hand.ask(shops.script_calls)]
    # The first ones fill what room is left; from then on the process knows everybody in line.
    ask(shop, payloads[:half], status=REFUSED, also=ADMITTED, plan=plan)
    calls.append(shop.hand.ask(shops.script_calls))
    if calls[1] == calls[0]:
        raise LoadFailed(f"{shop.name}: buyers were let in, and Redis counts no script call")
    time.sleep(TAIL_SECONDS)
    load = ask(shop, payloads[half:], status=REFUSED, plan=plan)
    calls.append(shop.hand.ask(shops.script_calls))
    answers, leaked = sum(load.statuses.values()), calls[2] - calls[1]
    say(f"  {shop.name}: {answers:,} sold-out answers, {leaked} script calls; {calls[1] - calls[0]} before")
    return 1 - min(leaked, answers) / answers


def measure_large(shop: AgeShop, *, plan: Plan, alongside: Callable[[], Ends]) -> tuple[Large, Ends]:
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


BENCHMARK = Benchmark(
    title="A shop without a past alongside an old one: measured",
    packages=("django", "redis", "hiredis", "uvicorn", "httptools", "uvloop"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
)
