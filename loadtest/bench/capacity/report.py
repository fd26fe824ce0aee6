"""What was predicted and what was measured: figures with their bound, and a table of the parts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from loadtest.bench.capacity.plan import Deployment
from loadtest.bench.harness.machine import GENERATOR, POSTGRES, REDIS, SETTLER, WEB
from loadtest.bench.harness.report import Figure, ratio
from shop.capacity.costs import Costs
from shop.capacity.prediction import Layout, most_a_second

# What a plan for a sale can live with: it is made with 30 % of each core to spare.
MAX_OFF_PERCENT = 20
PARTS = {"web_us": WEB, "settler_us": SETTLER, "redis_us": REDIS, "postgres_us": POSTGRES}


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
