"""The floors of settlement, expiry, payment and the audit can be missed, and an even pace is even."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from loadtest.bench.harness.report import Figure, quantile
from loadtest.bench.load.loader import Load, Pace
from loadtest.bench.settle import payments
from loadtest.bench.settle.plan import FULL
from loadtest.bench.settle.report import audit_figures, expiry_figures, payment_figures, settlement_figures

GOOD = [10.0] * 98


@pytest.mark.parametrize(
    ("figures", "broken"),
    [
        (settlement_figures([1, 8_000, 9_000], [400], [10_600]), []),
        (settlement_figures([1, 7_999, 9_000], [400], [10_600]), ["settlement, batch 500"]),
        (settlement_figures([1, 8_000, 9_000], [400], [10_700]), ["settlement ÷ the same rows copied"]),
        (expiry_figures([2.9, 3.0, 9.0], [0.5], holds=10_000), []),
        (expiry_figures([2.9, 3.1, 9.0], [0.5], holds=10_000), ["expiry of 10,000 due holds"]),
        (payment_figures(confirm_ms=[*GOOD, 50.0, 50.0], commit_ms=[1.0], call_ms=[1.0]), []),
        (
            payment_figures(confirm_ms=[*GOOD, 51.0, 51.0], commit_ms=[1.0], call_ms=[1.0]),
            ["payment confirmed alongside a flood, p99"],
        ),
        (audit_figures([0.9, 1.0, 1.1], [0.1], orders=100_000), []),
        (audit_figures([0.9, 1.1, 1.1], [0.1], orders=100_000), ["audit of a sale with 100,000 orders"]),
    ],
    ids=lambda value: "broken" if value and isinstance(value[0], str) else None,
)
def test_a_missed_floor_is_named(figures: list[Figure], broken: list[str]) -> None:
    assert [figure.name for figure in figures if not figure.ok] == broken


def test_no_payment_at_all_keeps_no_floor() -> None:
    assert math.isnan(quantile([], 0.99))
    assert not all(figure.ok for figure in payment_figures(confirm_ms=[], commit_ms=[], call_ms=[]))


@pytest.mark.parametrize(
    ("paid_per_second", "asked_per_second", "faults"),
    [
        (190, 950, []),
        (190, 949, ["949 asks a second alongside them, 1000 were meant"]),
        (189, 950, ["189 payments a second, 200 were meant"]),
    ],
)
def test_payments_count_only_alongside_the_flood_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, paid_per_second: int, asked_per_second: int, faults: list[str]
) -> None:
    def load(status: str, per_second: int) -> Load:
        statuses = Counter({status: per_second})
        return Load(began_at=0.0, seconds=1.0, answered=per_second, statuses=statuses, waits_ms=[])

    fixture: Any = type("Shop", (), {"sale_id": 1})
    monkeypatch.setattr(payments, "one_row", lambda *_: (paid_per_second,))
    paid, asked = load("200", paid_per_second), load("202", asked_per_second)
    assert payments._faults(fixture, plan=FULL, confirm=paid, call=paid, asked=asked) == faults


def test_a_pace_is_even_and_catches_up_a_moment_only() -> None:
    pace, sent = Pace(100), []
    for tick in range(2_000):
        now = 50 + tick / 1_000
        if not 50.5 <= now < 51.5 and pace.may_send(now):  # nothing can be sent for a second
            sent.append(now)
    assert 49 <= sum(now < 50.5 for now in sent) <= 51
    # Half a second's own share, and at most what a tenth of a second held back.
    assert 49 <= sum(now >= 51.5 for now in sent) <= 62
