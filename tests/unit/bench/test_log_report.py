"""A long log's benchmark fails by what it measured, and the log that it writes keeps every rule. Opens no port."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from loadtest.bench.log.report import Results, figures_of
from loadtest.bench.log.written import WAVE, leaves_of
from loadtest.verify.__main__ import judge
from loadtest.verify.signed_log import SignedLog, write

GOOD = Results(
    checkpoints=[2.0, 3.0, 90.0], proofs=[6.0, 7.0, 90.0], verify_seconds=40.0, first_seconds=1.0, page_seconds=50.0
)


def broken(results: Results) -> list[str]:
    """Return the names of the figures that do not keep their bound."""
    return [figure.name for figure in figures_of(results, leaves=1_000_000) if not figure.ok]


def test_a_good_run_keeps_every_bound_whatever_one_call_says() -> None:
    assert broken(GOOD) == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"checkpoints": [2.0, 6.0, 6.0]}, "checkpoint, median"),
        ({"proofs": [2.0, 11.0, 11.0]}, "proof of a place, median"),
        ({"verify_seconds": 61.0}, "verify_sale.py, 1,000,000 leaves"),
        ({"first_seconds": 3.1}, "the page's first result"),
    ],
)
def test_each_bound_can_be_broken(bad: dict[str, float], said: str) -> None:
    assert broken(replace(GOOD, **bad)) == [said]  # type: ignore[arg-type]


def test_without_a_browser_the_run_fails() -> None:
    assert "the page's first result" in broken(replace(GOOD, first_seconds=float("nan"), page_seconds=float("nan")))


@pytest.mark.parametrize("units", [WAVE, 2 * WAVE])
def test_the_log_keeps_every_rule_and_has_every_kind_of_end(units: int) -> None:
    told = [{**leaf, "at": 1} for _, leaf in islice(leaves_of(1, units=units, first_seq=1), 12 * WAVE)]
    assert judge(SignedLog(write(told))) == set()
    assert {leaf["outcome"] for leaf in told if "outcome" in leaf} == {"held", "paid", "expired", "sold_out"}
    ordinals = [ordinal for ordinal, leaf in islice(leaves_of(1, units=units, first_seq=1), 12 * WAVE)]
    assert ordinals == sorted(ordinals)
    told[-1] = {**told[-1], "kind": "decided", "outcome": "held"}  # the control
    assert judge(SignedLog(write(told))) != set()
