"""The benchmark of the lists of staff fails by what it measured. Opens no port."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.bench.desk.run import figures_of

GOOD: dict[str, Any] = {
    "pages": {"orders": [90.0, 100.0, 900.0]},
    "csv_seconds": 3.0,
    "csv_mib": 5.0,
    "csv_rows": 100_000,
    "forget_ms": [20.0, 30.0, 900.0],
    "step_ms": [100.0] * 100,
}


def broken(**bad: Any) -> list[str]:
    """Return the names of the figures that do not keep their bound."""
    return [figure.name for figure in figures_of(**(GOOD | bad)) if not figure.ok]


def test_a_good_run_keeps_every_bound_whatever_one_call_says() -> None:
    assert broken() == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"pages": {"orders": [90.0, 301.0, 301.0]}}, "orders, median"),
        ({"csv_seconds": 10.1}, "100,000 orders as CSV"),
        ({"csv_mib": 50.1}, "memory that the CSV took"),
        ({"forget_ms": [301.0, 301.0, 1.0]}, "one buyer forgotten, median"),
        ({"step_ms": [100.0] * 601}, "all others forgotten"),
        ({"step_ms": [501.0]}, "longest step of it"),
    ],
)
def test_each_bound_can_be_broken(bad: dict[str, Any], said: str) -> None:
    assert broken(**bad) == [said]
