"""How long and how often the whole shop is measured, and what it promises of its speed: every figure of a run with its
floor and its limit. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import median as middle
from typing import TYPE_CHECKING

from loadtest.bench.gate.admission import AdmissionPlan
from loadtest.bench.gate.report import MAX_UNAVAILABLE, median, per_cpu_second, ratio_of_rounds
from loadtest.bench.harness.benchmark import REPEATED
from loadtest.bench.harness.machine import POSTGRES, REDIS, SETTLER
from loadtest.bench.harness.report import Figure, quantile, ratio
from loadtest.bench.load.loader import LoadWindow
from loadtest.bench.shop.costs import Scale
from loadtest.bench.shop.overload import Pressure, spread

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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Seconds, rounds and sizes of each measurement. web_workers, crowd_workers: web processes, of the spike.

    generators: processes the buyers of the spike come from; rests between measurements, in seconds, let the stores
    finish what they put off.
    """

    sold_out: AdmissionPlan
    limit_seconds: float = 1.5
    road: LoadWindow
    buyers: int = 20_000
    spike_units: int = 1_000
    spikes: int = 3
    pressure: Pressure
    scale: Scale
    copied: int = 20_000
    web_workers: int = 1
    crowd_workers: int = 2
    generators: int = 2
    rest_seconds: float = 1.0


FULL = Plan(
    sold_out=AdmissionPlan(rounds=12, seconds=1.2, warm_up_seconds=0.5, connections=256),
    road=LoadWindow(seconds=60.0, warm_up_seconds=3.0),
    pressure=Pressure(),
    scale=Scale(),
)
QUICK = Plan(
    sold_out=AdmissionPlan(rounds=1, seconds=1.5, warm_up_seconds=0.5, connections=256),
    limit_seconds=0.5,
    road=LoadWindow(seconds=5.0, warm_up_seconds=1.0),
    buyers=4_000,
    spike_units=200,
    spikes=1,
    pressure=Pressure(
        step_seconds=1.5,
        step_warm_up_seconds=0.5,
        max_steps=3,
        calm_seconds=3.0,
        overload_seconds=5.0,
        after_seconds=5.0,
        connections=2_048,
    ),
    scale=Scale(skus=(1, 10), spread_over=10_000, lines=(1_000, 10_000), at_length=4_000, rounds=1),
    copied=5_000,
)
METHOD = (
    "Everything in one run on one machine, with stores of its own: PostgreSQL with fsync, Valkey with appendfsync "
    "always. Web ({web_workers} process, {crowd_workers} in the spike, whose connections are more than one may hold), "
    "1 settler, both stores and the load generator share all cores; "
    "nothing is bound to one, except for the sold-out answers. The generators are bare epoll loops of our own.",
    REPEATED,
    "Limits, in the same run: a server that does nothing (an ASGI application on the same server with the same flags "
    "that reads the body and answers); Redis without a script (ZADD and HSET, 512 requests a round trip); the disk "
    "(a page written and fdatasync, one after the other); the rows of a sale copied, 500 to a transaction, into tables "
    "with the same columns, indexes and constraints. ÷ limit is the figure over its limit, whatever else that limit "
    "leaves out.",
    "Sustained: {road.connections} connections, one request in flight on each, every request by a buyer never seen "
    "before, from a network of its own; any answer but 202 and 503 fails the run, and more than one 503 in a thousand. "
    "CPU: of each part's processes, over the decisions. Counted are orders decided in PostgreSQL within the "
    "{road.seconds:g} s; the generator rests while too many are undecided. Its limit: the rows copied.",
    "Spike: {buyers:,} buyers, each with a connection of its own, opened before; the sale has {spike_units:,} units "
    "and opens at a moment known to all. Every buyer asks at that moment, and every wait counts from it, so it "
    "includes the time the {generators} generators need to send and read. A 503 is sent again after a second by the "
    "same buyer, and its wait goes on. {spikes} spikes, a sale each; figures are of the middle one by its p99. Its "
    "limit: the same crowd before the server that does nothing.",
    "Sold out: {sold_out.rounds} rounds of {sold_out.seconds:g} s in turns with the server that does nothing, "
    "{sold_out.connections} connections; the server on one core, generator and Valkey on another. No buyer asks twice. "
    "Figures are medians, the ratio that of the rounds' ratios. The ratio per second of server CPU is printed too: a "
    "neighbour disturbs it least.",
    "Overload: open arrivals, evenly spaced, whatever becomes of those before them; at most {pressure.connections:,} "
    "buyers wait at once, and who could not be sent for a second gives up. The knee is the highest offered rate of "
    "which 95 % is decided within the same {pressure.step_seconds:g} s, found to 7 %. Then "
    "{pressure.calm:g} × knee for {pressure.calm_seconds:g} s, {pressure.overload:g} × for "
    "{pressure.overload_seconds:g} s, {pressure.calm:g} × again for {pressure.after_seconds:g} s on the same "
    "connections. Goodput: orders decided in PostgreSQL within the overload. Normal again: from then on the p99 of "
    "every second is within {pressure.tolerance:g} × of what it was before; a click without a 202 is a wait for ever.",
    "Cost: {scale.spread_over:,} purchases spread evenly over 1 to {scale.most_skus} SKUs, each SKU a fresh one, "
    "{scale.rounds} rounds; and {scale.at_length:,} purchases at the end and the front of a line in which 1,000 to "
    "{scale.longest_line:,} wait, on its way up and again on its way down, begun when Redis does not rewrite its file. "
    "Admission by its script, then the real settler; CPU time of PostgreSQL, Valkey and the settler together. Memory: "
    "what Valkey says its keys of the SKU use, over the requests in them. ± is half of the range over the middle of "
    "the range.",
    "What bounds it: CPU time of each part's processes, those that ended too, from the opening to the last answer "
    "(spike), or from a second before the first click until all is decided (overload), over the answers.",
    "Afterwards the audit of every sale that was measured must find nothing.",
)
