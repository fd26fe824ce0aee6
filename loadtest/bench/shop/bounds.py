"""What the whole shop promises of its speed: every figure of a run with its floor and its limit. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loadtest.bench.gate.bounds import busy_share, median, per_cpu_second, ratio_of_rounds
from loadtest.bench.harness.figures import Figure, ratio
from loadtest.bench.settle.bounds import quantile
from loadtest.bench.shop.knee import spread

if TYPE_CHECKING:
    from loadtest.bench.gate.admission import Turn
    from loadtest.bench.gate.end_to_end import Road
    from loadtest.bench.shop.costs import Cost
    from loadtest.bench.shop.overload import OverloadRun
    from loadtest.bench.shop.run import Limits
    from loadtest.bench.shop.spike import Spike

ADMITTED, REFUSED = 202, 409
MIN_SUSTAINED, AIM_SUSTAINED = 8_000, 10_000
MIN_OF_NOOP, AIM_OF_NOOP = 0.30, 0.36
MIN_SOLD_OUT = 1.5
MIN_OVERLOAD = 0.9
MAX_REFUSED = 0.8
MAX_WEB_MIB = 120
MAX_SPREAD = 0.15


def limit_figures(limits: Limits, turns: Sequence[Turn]) -> list[Figure]:
    """Return what the parts can do at most."""
    return [
        Figure(name="limit: no-op server, one core", value=median(turns, side="no-op"), unit="requests/s"),
        Figure(name="limit: Redis without a script, pipelined", value=limits.pipelined, unit="requests/s"),
        Figure(name="limit: the rows of an order copied", value=limits.copied, unit="orders/s"),
        Figure(name="limit: a page written and synced", value=limits.syncs, unit="syncs/s"),
    ]


def road_figures(road: Road, *, copied: float, noop: float) -> list[Figure]:
    """Return the figures of the sustained load. copied: orders a second, the limit; noop: its requests a second."""
    return [
        Figure(
            name=f"sustained {road.seconds:g} s: ask to durable decision",
            value=road.decided_per_second,
            unit="decisions/s",
            at_least=MIN_SUSTAINED,
            aim=AIM_SUSTAINED,
            limit=copied,
        ),
        Figure(
            name="sustained ÷ no-op server on one core",
            value=ratio(road.decided_per_second, noop),
            at_least=MIN_OF_NOOP,
            aim=AIM_OF_NOOP,
        ),
        Figure(name="sustained: CPU of web, settler and stores for a decision", value=road.shop_cpu_us, unit="µs"),
        Figure(name="sustained: wait for the 202, p99", value=road.wait_p99_ms, unit="ms"),
        Figure(name="sustained: share of 503", value=road.unavailable, at_most=0.001),
    ]


def spike_figures(spikes: Sequence[Spike], noop: Spike) -> list[Figure]:
    """Return the figures of the spike; all must be right, the middle one is quoted."""
    limit = quantile(noop.waits_ms.get(ADMITTED, []), 0.99)
    buyers = sum(spikes[0].statuses.values()) + spikes[0].silent
    return [
        Figure(
            name=f"spike of {buyers:,}: admitted, p99",
            value=_middle_p99(spikes, ADMITTED),
            unit="ms",
            at_most=1_500,
            limit=limit,
        ),
        Figure(name="spike: refused, p99", value=_middle_p99(spikes, REFUSED), unit="ms", limit=limit),
        Figure(
            name="spike: refused, p99 ÷ that of the no-op server for the same crowd",
            value=ratio(_middle_p99(spikes, REFUSED), limit),
            at_most=MAX_REFUSED,
        ),
        Figure(name="limit: the same crowd, no-op server, p99", value=limit, unit="ms"),
        Figure(
            name="spike: last decision after the first request",
            value=statistics.median(spike.last_decision_seconds for spike in spikes),
            unit="s",
            at_most=5,
        ),
        Figure(
            name="spike: buyers told neither place nor sold out",
            value=max(spike.failures for spike in spikes),
            at_most=0,
        ),
        Figure(name="spike: 503 that were sent again, most", value=max(spike.shed for spike in spikes)),
    ]


def _middle_p99(spikes: Sequence[Spike], status: int) -> float:
    return statistics.median(quantile(spike.waits_ms.get(status, []), 0.99) for spike in spikes)


def sold_out_figures(turns: Sequence[Turn]) -> list[Figure]:
    """Return the figures of the sold-out answers."""
    gone, noop = median(turns, side="sold out"), median(turns, side="no-op")
    return [
        Figure(name="sold-out answers, one core", value=gone, unit="answers/s", limit=noop),
        Figure(name="sold out ÷ no-op, answers a second", value=ratio_of_rounds(turns, "sold out", "no-op")),
        # The loader and Redis share a core: a server that is faster than both would be measured by theirs.
        Figure(
            name="sold out ÷ no-op, per second of server CPU",
            value=ratio(*per_cpu_second(turns, "sold out", "no-op")),
            at_least=MIN_SOLD_OUT,
        ),
        Figure(name="no-op server's share of its core (disturbed below 0.9)", value=busy_share(turns, side="no-op")),
    ]


def overload_figures(found: OverloadRun, *, sustained_us: float, web_mib: float) -> list[Figure]:
    """Return the figures of the overload; its limit is the knee.

    sustained_us: the shop's CPU for a decision under a load that it keeps up with. web_mib: of the web process.
    """
    return [
        Figure(name="knee: highest rate it keeps up with", value=found.knee.offered, unit="offered/s"),
        Figure(name="knee: wait for the 202, p99", value=found.knee.wait_p99_ms, unit="ms"),
        Figure(name="overload: offered", value=found.offered, unit="offered/s"),
        Figure(name="overload: share of it that could be sent", value=found.sent),
        Figure(name="overload: goodput", value=found.goodput, unit="decisions/s", limit=found.knee.goodput),
        Figure(
            name="overload: goodput ÷ the knee's",
            value=ratio(found.goodput, found.knee.goodput),
        ),
        Figure(
            name="overload: decisions per second of the shop's CPU ÷ sustained",
            value=ratio(sustained_us, found.shop_cpu_us),
            at_least=MIN_OVERLOAD,
        ),
        Figure(name="before the overload, p99", value=found.normal_p99_ms, unit="ms"),
        Figure(name="normal p99 again after", value=found.well_after_seconds, unit="s", at_most=5),
        Figure(name="web process after all that", value=web_mib, unit="MiB", at_most=MAX_WEB_MIB),
    ]


def cost_figures(by_skus: Mapping[int, Cost], by_line: Mapping[int, Cost], *, copied_us: float) -> list[Figure]:
    """Return the figures of the cost. copied_us: wall clock of the rows of an order, the limit."""
    found = []
    for curve, what in ((by_skus, "SKUs"), (by_line, "in line")):
        costs = list(curve.values())
        ends = f"{min(curve):,} to {max(curve):,} {what}"
        found += [
            Figure(
                name=f"CPU time a purchase, {max(curve):,} {what}",
                value=curve[max(curve)].cpu_us,
                unit="µs",
                limit=copied_us,
            ),
            Figure(
                name=f"CPU time a purchase, {ends}: ±",
                value=spread([cost.cpu_us for cost in costs]),
                at_most=MAX_SPREAD,
            ),
            Figure(name=f"Redis memory a purchase, {max(curve):,} {what}", value=curve[max(curve)].bytes, unit="bytes"),
            Figure(
                name=f"Redis memory a purchase, {ends}: ±",
                value=spread([cost.bytes for cost in costs]),
                at_most=MAX_SPREAD,
            ),
        ]
    return found
