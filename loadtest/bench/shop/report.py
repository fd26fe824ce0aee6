"""What the whole shop promises of its speed: every figure of a run with its floor and its limit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import median as middle
from typing import TYPE_CHECKING

from loadtest.bench.gate.report import MAX_UNAVAILABLE, median, per_cpu_second, ratio_of_rounds
from loadtest.bench.harness.machine import POSTGRES, REDIS, SETTLER
from loadtest.bench.harness.report import Figure, quantile, ratio
from loadtest.bench.shop.overload import spread

if TYPE_CHECKING:
    from loadtest.bench.gate.admission import Turn
    from loadtest.bench.gate.end_to_end import Road
    from loadtest.bench.shop.costs import Cost, Costs
    from loadtest.bench.shop.overload import OverloadRun
    from loadtest.bench.shop.spike import Spike

ADMITTED, REFUSED = 202, 409
MIN_SUSTAINED, AIM_SUSTAINED = 8_000, 10_000
MIN_OF_NOOP, AIM_OF_NOOP = 0.30, 0.36
MIN_SOLD_OUT = 1.5
MIN_OVERLOAD = 0.9
MAX_REFUSED = 0.8
MAX_WEB_MIB = 120
MAX_SETTLEMENT_US, MAX_REDIS_US = 38, 15
MAX_SPREAD = 0.15


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the parts can do at most, a second."""

    pipelined: float
    copied: float
    syncs: float


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything measured. noop_spike: the same crowd before a server that does nothing.

    web_mib: of the web process after all; let_in: the asks that it had let in by then.
    """

    limits: Limits
    turns: Sequence[Turn]
    road: Road
    noop_spike: Spike
    spikes: Sequence[Spike]
    overload: OverloadRun
    costs: Costs
    faults: Sequence[str]
    web_mib: float
    let_in: int


def figures_of(results: Results) -> list[Figure]:
    """Return every figure with its bound."""
    costs, copied = results.costs, results.limits.copied
    return [
        *road_figures(results.road, copied=copied, noop=median(results.turns, side="no-op")),
        *spike_figures(results.spikes, results.noop_spike),
        *sold_out_figures(results.turns),
        *overload_figures(results.overload, sustained_us=results.road.shop_cpu_us),
        *memory_figures(results.web_mib, let_in=results.let_in),
        *cost_figures(costs.by_skus, costs.by_line, copied_us=1_000_000 / copied),
        *limit_figures(results.limits, results.turns),
    ]


def road_figures(road: Road, *, copied: float, noop: float) -> list[Figure]:
    """Return the figures of the sustained load. copied: orders a second, the limit; noop: its requests a second."""
    name, decided = f"sustained {road.seconds:g} s: ask to durable decision", road.decided_per_second
    of_noop = ratio(decided, noop)
    return [
        Figure(name, value=decided, unit="decisions/s", at_least=MIN_SUSTAINED, aim=AIM_SUSTAINED, limit=copied),
        Figure("sustained ÷ no-op server on one core", value=of_noop, at_least=MIN_OF_NOOP, aim=AIM_OF_NOOP),
        Figure("sustained: CPU of web, settler and stores for a decision", value=road.shop_cpu_us, unit="µs"),
        Figure(
            "sustained: CPU of PostgreSQL and settler for a decision",
            value=road.cpu_us.get(POSTGRES, nan) + road.cpu_us.get(SETTLER, nan),
            unit="µs",
            at_most=MAX_SETTLEMENT_US,
        ),
        Figure(
            "sustained: CPU of Redis for a purchase, admitted and settled",
            value=road.cpu_us.get(REDIS, nan),
            unit="µs",
            at_most=MAX_REDIS_US,
        ),
        Figure("sustained: share of the machine its host took", value=road.stolen),
        Figure("sustained: wait for the 202, p99", value=road.wait_p99_ms, unit="ms"),
        Figure("sustained: share of 503", value=road.unavailable, at_most=MAX_UNAVAILABLE),
    ]


def spike_figures(spikes: Sequence[Spike], noop: Spike) -> list[Figure]:
    """Return the figures of the spike; all must be right, the middle one is quoted."""
    limit = quantile(noop.waits_ms.get(ADMITTED, []), 0.99)
    buyers = sum(spikes[0].statuses.values()) + spikes[0].silent
    admitted, refused = (
        middle(quantile(spike.waits_ms.get(status, []), 0.99) for spike in spikes) for status in (ADMITTED, REFUSED)
    )
    last, failures = middle(each.last_decision_seconds for each in spikes), max(each.failures for each in spikes)
    of_noop = ratio(refused, limit)
    return [
        Figure(f"spike of {buyers:,}: admitted, p99", value=admitted, unit="ms", at_most=1_500, limit=limit),
        Figure("spike: refused, p99", value=refused, unit="ms", limit=limit),
        Figure("spike: refused, p99 ÷ that of the no-op server for the same crowd", value=of_noop, at_most=MAX_REFUSED),
        Figure("limit: the same crowd, no-op server, p99", value=limit, unit="ms"),
        Figure("spike: last decision after the first request", value=last, unit="s", at_most=5),
        Figure("spike: buyers told neither place nor sold out", value=failures, at_most=0),
        Figure("spike: 503 that were sent again, most", value=max(spike.shed for spike in spikes)),
        Figure(
            "spike: share of the machine its host took, worst", value=max(spike.stolen for spike in (noop, *spikes))
        ),
    ]


def sold_out_figures(turns: Sequence[Turn]) -> list[Figure]:
    """Return the figures of the sold-out answers."""
    gone, noop = median(turns, side="sold out"), median(turns, side="no-op")
    # The loader and Redis share a core: a server that is faster than both would be measured by theirs.
    per_cpu = ratio(*per_cpu_second(turns, "sold out", "no-op"))
    return [
        Figure("sold-out answers, one core", value=gone, unit="answers/s", limit=noop),
        Figure("sold out ÷ no-op, answers a second", value=ratio_of_rounds(turns, "sold out", "no-op")),
        Figure("sold out ÷ no-op, per second of server CPU", value=per_cpu, at_least=MIN_SOLD_OUT),
        Figure("no-op server's share of its core (disturbed below 0.9)", value=median(turns, side="no-op", of="busy")),
    ]


def overload_figures(found: OverloadRun, *, sustained_us: float) -> list[Figure]:
    """Return the figures of the overload; its limit is the knee.

    sustained_us: the shop's CPU for a decision under a load that it keeps up with.
    """
    knee, per_cpu = found.knee, ratio(sustained_us, found.shop_cpu_us)
    name = "overload: decisions per second of the shop's CPU ÷ sustained"
    return [
        Figure("knee: highest rate it keeps up with", value=knee.offered, unit="offered/s"),
        Figure("knee: wait for the 202, p99", value=knee.wait_p99_ms, unit="ms"),
        Figure("overload: offered", value=found.offered, unit="offered/s"),
        Figure("overload: share of it that could be sent", value=found.sent),
        Figure("overload: goodput", value=found.goodput, unit="decisions/s", limit=knee.goodput),
        Figure("overload: goodput ÷ the knee's", value=ratio(found.goodput, knee.goodput)),
        Figure(name, value=per_cpu, at_least=MIN_OVERLOAD),
        Figure("before the overload, p99", value=found.normal_p99_ms, unit="ms"),
        Figure("normal p99 again after", value=found.well_after_seconds, unit="s", at_most=5),
        Figure("overload: share of the machine its host took", value=found.stolen),
    ]


def memory_figures(web_mib: float, *, let_in: int) -> list[Figure]:
    """Return the memory of the web process. let_in: the asks that it had let in by then."""
    return [
        Figure("web process after all that", value=web_mib, unit="MiB", at_most=MAX_WEB_MIB),
        Figure("asks that it had let in by then", value=let_in, unit="asks"),
    ]


def cost_figures(by_skus: Mapping[int, Cost], by_line: Mapping[int, Cost], *, copied_us: float) -> list[Figure]:
    """Return the figures of the cost. copied_us: wall clock of the rows of an order, the limit."""
    found = []
    for curve, what in ((by_skus, "SKUs"), (by_line, "in line")):
        most = f"{max(curve):,} {what}"
        ends, longest = f"{min(curve):,} to {most}", curve[max(curve)]
        cpu = spread([cost.cpu_us for cost in curve.values()])
        memory = spread([cost.bytes for cost in curve.values()])
        found += [
            Figure(f"CPU time a purchase, {most}", value=longest.cpu_us, unit="µs", limit=copied_us),
            Figure(f"CPU time a purchase, {ends}: ±", value=cpu, at_most=MAX_SPREAD),
            Figure(f"Redis memory a purchase, {most}", value=longest.bytes, unit="bytes"),
            Figure(f"Redis memory a purchase, {ends}: ±", value=memory, at_most=MAX_SPREAD),
        ]
    return found


def limit_figures(limits: Limits, turns: Sequence[Turn]) -> list[Figure]:
    """Return what the parts can do at most."""
    return [
        Figure("limit: no-op server, one core", value=median(turns, side="no-op"), unit="requests/s"),
        Figure("limit: Redis without a script, pipelined", value=limits.pipelined, unit="requests/s"),
        Figure("limit: the rows of an order copied", value=limits.copied, unit="orders/s"),
        Figure("limit: a page written and synced", value=limits.syncs, unit="syncs/s"),
    ]
