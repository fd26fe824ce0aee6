"""How long and how often the whole shop is measured: in full, and to see that it works. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.bench.gate.admission import AdmissionPlan
from loadtest.bench.harness.benchmark import REPEATED
from loadtest.bench.load.loader import LoadWindow
from loadtest.bench.shop.costs import Scale
from loadtest.bench.shop.overload import Pressure


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
    settlers: int = 1
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
    "{settlers} settler, both stores and the load generator share all cores; "
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
    "every second is within {pressure.tolerance:g} × of what it was before.",
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
