"""Measures the unit costs of the smallest shop, predicts larger ones, and runs them; then replays an opening.
Needs Django to be set up.
"""

from __future__ import annotations

from loadtest.bench.capacity.report import (
    BUYERS,
    DEPLOYMENTS,
    FULL,
    METHOD,
    QUICK,
    Plan,
    Round,
    figures_of,
    opening_figures,
    predict,
    predicted_decisions,
    samples_of,
    scaled_moments,
)
from loadtest.bench.capacity.shops import replay_opening, run_deployment
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, in_turns, say, say_fields
from loadtest.bench.harness.report import Figure
from shop.capacity.costs import Costs, kept_costs


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Measure everything. Raises LoadFailed, ServerFailed."""
    plan, kept = run.plan, kept_costs()
    say("The smallest shop, for its unit costs")
    first, faults = run_deployment(DEPLOYMENTS[0], run=run, name="costs")
    say_fields(first, of=first.deployment.name)
    rounds: list[Round] = []
    for number, deployment in in_turns(DEPLOYMENTS, rounds=plan.rounds):
        name = f"round-{number}-{deployment.web}-{deployment.settlers}-{deployment.masters}"
        found, broken = run_deployment(deployment, run=run, name=name)
        say_fields(found, of=deployment.name)
        rounds.append(found)
        faults += broken
    predictions = [
        predict(each.deployment, measured=first, kept=kept, skus=plan.skus, cores=each.cores_left) for each in rounds
    ]
    opening, broken = _replay(run, first=first, kept=kept)
    bounds = {each.deployment.name: predicted.bound for each, predicted in zip(rounds, predictions, strict=True)}
    return Findings(
        figures=[*figures_of(rounds, predictions), *opening],
        samples=samples_of([first, *rounds]),
        faults=faults + broken,
        facts={"Predicted to be bound by": bounds},
    )


def _replay(run: BenchmarkRun[Plan], *, first: Round, kept: Costs) -> tuple[list[Figure], list[str]]:
    """Replay the opening for a million buyers in scaled time; return its figures, and what its audits found."""
    plan = run.plan
    moments = scaled_moments(share=plan.share, speed_up=plan.speed_up)
    say(f"The opening for {BUYERS:,} buyers, as one for {len(moments):,} within {moments[-1]:.0f} s")
    measured, cores, faults = replay_opening(moments, run=run)
    pace = predict(DEPLOYMENTS[0], measured=first, kept=kept, skus=plan.skus, cores=cores).per_second
    predicted = predicted_decisions(moments, per_second=pace)
    return opening_figures(moments, predicted=predicted, measured=measured, speed_up=plan.speed_up), faults


BENCHMARK = Benchmark(
    title="Predictions of capacity alongside runs: measured",
    packages=("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "uvloop"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
)
