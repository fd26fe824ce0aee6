"""Which shops are run, what was predicted of them and what was measured: the plan, figures with their bound, a table of
the parts; and an opening for a million buyers in scaled time, and what a line of one pace makes of it. Pure.

A shop of `share` times the capacity of the one that runs has the same waits when `share` times as many buyers press a
second. In `speed_up` times less time every wait is as many times shorter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median

from loadtest.bench.harness.machine import GENERATOR, POSTGRES, REDIS, SETTLER, WEB
from loadtest.bench.harness.report import Figure, quantile, ratio
from loadtest.plan.arrivals import NS, Arrivals, Stage
from shop.capacity.costs import Costs
from shop.capacity.prediction import Layout, most_a_second

# What a plan for a sale can live with: it is made with 30 % of each core to spare.
MAX_OFF_PERCENT = 20
PARTS = {"web_us": WEB, "settler_us": SETTLER, "redis_us": REDIS, "postgres_us": POSTGRES}
BUYERS = 1_000_000
# Half of them press in the first ten seconds; the rest comes in ten minutes, fewer and fewer.
STAGES = (
    Stage("at the opening", seconds=10, rate=50_000, end_rate=50_000),
    Stage("the first minute", seconds=50, rate=10_000, end_rate=2_000),
    Stage("ten minutes", seconds=540, rate=5_000 / 9, end_rate=5_000 / 27),
)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """How many processes of each kind a shop has."""

    web: int = 1
    settlers: int = 1
    masters: int = 1

    @property
    def name(self) -> str:
        """What a figure calls it."""
        return f"{self.web} web, {self.settlers} settler{'s' * (self.settlers > 1)}, {self.masters} Redis"


# The first is measured once more, before all others: its unit costs are what predicts them all.
DEPLOYMENTS = (
    Deployment(),
    Deployment(web=2),
    Deployment(settlers=2),
    Deployment(masters=3),
    Deployment(web=2, settlers=2, masters=3),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. rounds: of each deployment, in turns; skus: sold at once, in sales of their own.

    speed_up, share: of the opening that is replayed: so much faster, and so much less of its presses a second.
    """

    rounds: int = 3
    seconds: float = 10.0
    warm_up_seconds: float = 2.0
    connections: int = 3072
    skus: int = 6
    speed_up: int = 10
    share: int = 2


FULL = Plan()
QUICK = Plan(rounds=1, seconds=3.0, warm_up_seconds=1.0, speed_up=50)
METHOD = (
    "Each shop is run on stores of its own making: one Valkey, or a Cluster of three masters, with every write on disk "
    "before its answer; PostgreSQL; web processes and settlers. {connections} connections ask for units of {skus} SKUs "
    "in turn, one request in flight on each, so that batches are as full as in an opening. Every request is by a buyer "
    "never seen before; any answer but 202 and 503 fails the run.",
    "First the smallest shop runs by itself: the CPU time of web, settler, Redis, PostgreSQL and load generator, "
    "over the orders it decided, are the unit costs. From these, and from nothing of the later runs, "
    "most_a_second of shop/capacity/prediction.py predicts every shop, the smallest one again too.",
    "{rounds} rounds of {seconds:g} s a shop, in turns, every second round backwards, each after a flood of "
    "{warm_up_seconds:g} s that does not count and a pause until no process has work. Counted are orders decided in "
    "PostgreSQL from the second second of the window on: by then each line has the most that the generator lets "
    "wait. Figures are medians.",
    "All processes share the cores of one machine, the load generator with them. So a prediction is the least of what "
    "each kind of process can do at most on cores of its own, and of all cores over the CPU time of all parts for one "
    "order, the generator's included. What other processes of the machine take meanwhile is measured and left out of "
    "its cores. On two cores that sum is what bounds every shop: that more processes do not help there is predicted "
    "too. Where each kind has cores of its own, the other bounds decide; a machine with two cores cannot show that.",
    "What a prediction is off by is its distance from the measured median, over that median. Afterwards the audit of "
    "every sale must find nothing.",
    "An opening for 1,000,000 buyers is replayed against the smallest shop: half of them press within 10 s, 300,000 in "
    "the next 50 s, the others in the nine minutes after. It runs {speed_up} times as fast, with 1/{share} of the "
    "presses a second, so it stands for a shop of {share} times the capacity in which all {share} shares come at once. "
    "There is a unit for everybody. The prediction lets buyers through one by one at the pace that was predicted for "
    "that shop. The n-th decision in PostgreSQL is compared with the n-th press, and times are those of the whole "
    "opening: {speed_up} times what was measured. What a network, a proxy or a hundred processes add is not in it.",
)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One run of one shop. cpu_us: of each part, the generator too, for one order.

    cores_left: by other processes of the machine; busy: which share of these it used; stolen: what the host took.
    """

    deployment: Deployment
    per_second: float
    cpu_us: Mapping[str, float]
    cores_left: float
    busy: float
    stolen: float


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a shop should do at most, and what bounds it."""

    per_second: float
    bound: str


def predict(deployment: Deployment, *, measured: Round, kept: Costs, skus: int, cores: float) -> Prediction:
    """Return what that shop should do, from what `measured` cost; the lock of a SKU as `kept` has it."""
    units = dict(kept.units)
    for name, part in PARTS.items():
        units[name] = replace(units[name], value=measured.cpu_us[part])
    layout = Layout(
        web=deployment.web,
        settlers=deployment.settlers,
        masters=deployment.masters,
        skus=skus,
        cores=cores,
        generator_us=measured.cpu_us[GENERATOR],
    )
    per_second, bound = most_a_second(layout, costs=replace(kept, units=units))
    return Prediction(per_second=per_second, bound=bound)


def figures_of(rounds: Sequence[Round], predictions: Sequence[Prediction]) -> list[Figure]:
    """Return for each deployment what was predicted for its rounds, what was measured, and by how much that is off."""
    figures = []
    for deployment in dict.fromkeys(each.deployment for each in rounds):
        pairs = [pair for pair in zip(predictions, rounds, strict=True) if pair[1].deployment == deployment]
        predicted, measured = median(pair[0].per_second for pair in pairs), median(pair[1].per_second for pair in pairs)
        off = 100 * ratio(abs(predicted - measured), measured)
        figures += [
            Figure(f"{deployment.name}: predicted", value=predicted, unit="decisions/s"),
            Figure(f"{deployment.name}: measured", value=measured, unit="decisions/s"),
            Figure(f"{deployment.name}: off by", value=off, unit="%", at_most=MAX_OFF_PERCENT),
        ]
    return figures


def samples_of(rounds: Sequence[Round]) -> list[dict[str, object]]:
    """Return every round as a row."""
    return [
        {
            "shop": each.deployment.name,
            "decisions per second": each.per_second,
            **{f"{part} µs": value for part, value in each.cpu_us.items()},
            "cores left": each.cores_left,
            "of these busy": each.busy,
            "stolen": each.stolen,
        }
        for each in rounds
    ]


def scaled_moments(*, share: int, speed_up: int) -> list[float]:
    """Return when each buyer presses, in seconds from the opening."""
    stages = tuple(
        Stage(each.name, seconds=each.seconds / speed_up, rate=each.rate / share, end_rate=each.end_rate / share)
        for each in STAGES
    )
    return [moment / NS for moment in Arrivals(stages, seed=1).instants_ns()]


def predicted_decisions(moments: Sequence[float], *, per_second: float) -> list[float]:
    """Return when each of them is decided by a shop of that pace, one after the other."""
    each = 1 / per_second
    return list(accumulate(moments, lambda before, moment: max(before, moment) + each, initial=0.0))[1:]


def opening_figures(
    moments: Sequence[float], *, predicted: Sequence[float], measured: Sequence[float], speed_up: int
) -> list[Figure]:
    """Return what was predicted and measured, as of the whole opening. Both in the order of decisions."""
    half, figures = len(moments) // 2 - 1, []
    for name, decided in (("predicted", predicted), ("measured", measured)):
        waits = [(at - moment) * speed_up for at, moment in zip(decided, moments, strict=True)]
        half_after = decided[half] * speed_up
        figures += [
            Figure(f"{BUYERS:,} buyers, half of them decided after: {name}", value=half_after, unit="s"),
            Figure(f"{BUYERS:,} buyers, wait for the decision, p50: {name}", value=quantile(waits, 0.5), unit="s"),
            Figure(f"{BUYERS:,} buyers, wait for the decision, p99: {name}", value=quantile(waits, 0.99), unit="s"),
        ]
    off = 100 * ratio(abs(predicted[half] - measured[half]), measured[half])
    name = f"{BUYERS:,} buyers, half of them decided after: off by"
    return [*figures, Figure(name, value=off, unit="%", at_most=MAX_OFF_PERCENT)]
