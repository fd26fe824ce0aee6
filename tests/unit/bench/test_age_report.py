"""The benchmark of an old shop fails by what it measured: each floor can be broken, and no pair decides alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadtest.bench.age.plan import FULL
from loadtest.bench.age.processes import Ends
from loadtest.bench.age.report import LOOK_NAMES, OLD, PROCESSES, YOUNG, AgeRound, Large, Results, figures_of

IDLE = dict.fromkeys(PROCESSES, 0.01)
LOOKS = {name: [4.9, 4.9, 4.9] for name in LOOK_NAMES}
METRICS = {"web": [9.0, 9.0, 90.0], "reconciler": [9.0, 9.0, 90.0]}
YOUNG_ROUND = AgeRound(
    side=YOUNG,
    decided=2_000,
    told_p50_ms=2.0,
    decided_p50_ms=10.0,
    decided_p99_ms=40.0,
    cpu_us=900.0,
    list_bytes=800,
    list_ms=0.5,
    metrics_bytes=3_000,
    looks_ms=LOOKS,
)
OLD_ROUND = replace(YOUNG_ROUND, side=OLD)
GOOD = Results(
    pairs=[(YOUNG_ROUND, OLD_ROUND)] * 3,
    idle=[(IDLE, IDLE)] * 3,
    my_tickets_ms=49.0,
    metrics_ms=METRICS,
    from_memory={YOUNG: 1.0, OLD: 1.0},
    retired_bytes=(70_000, 0),
    spread=[(10_000.0, 4_000.0)] * 3,
    large=Large(records=1_000_000, round_seconds=500.0, share=0.05, drifts=0),
    ends=Ends(
        holds=100_000,
        ended=100_000,
        late_p50_seconds=0.2,
        late_p99_seconds=0.9,
        latest_seconds=1.4,
        sweeping=0.004,
        sweeping_after=0.009,
    ),
)


def broken(results: Results) -> list[str]:
    """Return the names of the figures that do not keep their bound."""
    return [figure.name for figure in figures_of(results, plan=FULL) if not figure.ok]


def with_pairs(*, bad: int, **changed: Any) -> Results:
    """Return the good run with the old shop's round changed in `bad` of its three pairs."""
    pairs = [(YOUNG_ROUND, replace(OLD_ROUND, **changed))] * bad
    return replace(GOOD, pairs=[*pairs, *GOOD.pairs[bad:]])


def test_a_good_run_keeps_every_floor_whatever_one_pair_says() -> None:
    assert broken(GOOD) == []
    assert broken(with_pairs(bad=1, decided_p50_ms=90.0, decided_p99_ms=900.0, cpu_us=9_000.0, list_ms=9.0)) == []


def test_what_disturbs_both_shops_alike_is_no_ratio() -> None:
    slow = {"decided_p50_ms": 100.0, "decided_p99_ms": 400.0, "cpu_us": 9_000.0}
    pair = (replace(YOUNG_ROUND, **slow), replace(OLD_ROUND, **slow))
    assert broken(replace(GOOD, pairs=[pair] * 3)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"decided_p50_ms": 11.1}, "ask to decision, p50: old ÷ no past"),
        ({"decided_p99_ms": 50.1}, "ask to decision, p99: old ÷ no past"),
        ({"cpu_us": 991.0}, "CPU per purchase: old ÷ no past"),
        ({"decided": 1_000}, "decided in the round with the fewest"),
        ({"list_bytes": 20_001}, "GET /api/v1/sales, old shop"),
        ({"list_ms": 2.1}, "GET /api/v1/sales, old shop, median"),
        ({"metrics_bytes": 100_001}, "/metrics, old shop"),
        ({"looks_ms": {**LOOKS, "expirer": [21.0] * 3}}, "a look of the expirer"),
        ({"looks_ms": {**LOOKS, "settler": [21.0] * 3}}, "a look of the settler"),
        ({"looks_ms": {**LOOKS, "reconciler": [21.0] * 3}}, "a look of the reconciler"),
        ({"looks_ms": {**LOOKS, "retirement": [21.0] * 3}}, "a look of the retirement"),
        ({"looks_ms": {**LOOKS, "retention": [21.0] * 3}}, "a look of the retention"),
        ({"looks_ms": {**LOOKS, "payments worker": [5.1] * 3}}, "a look of the payments worker"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_floor_of_a_round_can_be_broken(changed: dict[str, Any], said: str) -> None:
    (name,) = broken(with_pairs(bad=2, **changed))
    assert name.startswith(said)


@pytest.mark.parametrize("process", PROCESSES)
def test_each_process_must_be_idle(process: str) -> None:
    busy = (IDLE, {**IDLE, process: 0.031})
    assert broken(replace(GOOD, idle=[busy, busy, (IDLE, IDLE)])) == [f"idle, old shop: {process}"]
    assert broken(replace(GOOD, idle=[busy, (IDLE, IDLE), (IDLE, IDLE)])) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"from_memory": {YOUNG: 1.0, OLD: 0.9999}}, "sold-out answers from memory, old"),
        ({"my_tickets_ms": 50.1}, "My tickets, old shop, median"),
        ({"metrics_ms": {**METRICS, "web": [9.0, 10.1, 10.1]}}, "/metrics of web with 1,000 live sales"),
        (
            {"metrics_ms": {**METRICS, "reconciler": [10.1] * 3}},
            "/metrics of reconciler with 1,000 live sales",
        ),
        ({"retired_bytes": (70_000, 1)}, "Redis memory of a retired SKU"),
        ({"retired_bytes": (0, 0)}, "Redis memory of a SKU before its sale is retired"),
        ({"spread": [(10_000.0, 2_400.0)] * 3}, "settled in 1,000 SKUs ÷ in one"),
        ({"large": replace(GOOD.large, share=0.081)}, "1,000,000 records in one live sale: everything idle"),
        ({"large": replace(GOOD.large, round_seconds=601.0)}, "1,000,000 records in one live sale: a full comparison"),
        (
            {"large": replace(GOOD.large, round_seconds=float("nan"))},
            "1,000,000 records in one live sale: a full comparison",
        ),
        ({"large": replace(GOOD.large, drifts=1)}, "1,000,000 records in one live sale: differences found"),
        ({"ends": replace(GOOD.ends, late_p99_seconds=1.01)}, "100,000 holds that end within 60 s: late, p99"),
        ({"ends": replace(GOOD.ends, ended=99_999)}, "100,000 holds that end within 60 s: ended"),
        ({"ends": replace(GOOD.ends, sweeping=0.011)}, "sweeping when nothing is held"),
        ({"ends": replace(GOOD.ends, sweeping_after=0.011)}, "sweeping after 1,000,000 holds, before a vacuum"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_other_floor_can_be_broken(changed: dict[str, Any], said: str) -> None:
    (name,) = broken(replace(GOOD, **changed))
    assert name.startswith(said)
