"""The verdict: waits and rates are those of the clients, and the table says what was found."""

from __future__ import annotations

import json
from pathlib import Path

from loadtest.checker import latency
from loadtest.checker.table import render
from loadtest.checker.verdict import as_json, clear_verdict
from tests.support.runs.hand_made_faults import one_unit_too_many
from tests.support.runs.hand_made_runs import MS, Run


def test_waits_are_those_of_the_clients() -> None:
    verdict = Run().judge()
    assert (verdict.admission.count, verdict.admission.max_ms) == (8, 1.0)
    assert (verdict.refusal.count, verdict.refusal.p50_ms) == (2, 1.0)
    assert (verdict.payment.count, verdict.payment.p99_ms) == (3, 1.0)
    # Ten asks, then seven looks in the same order: b1 saw the answer after ten other calls, each of 2 ms.
    assert (verdict.decision.count, verdict.decision.max_ms) == (7, 21.0)


def test_a_new_run_begins_without_the_verdict_of_the_one_before(tmp_path: Path) -> None:
    for name in ("audit.json", "verdict.json", "stages.json", "public_logs.txt", "run.json"):
        (tmp_path / name).write_text("of before")
    clear_verdict(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_rush_ends_with_the_last_attempt() -> None:
    rate = Run().judge().rate
    assert (rate.requests, rate.attempts) == (10, 10)
    assert rate.attempts_per_second == 500 + 26


def test_percentiles_are_nearest_rank() -> None:
    wait = latency.wait_of(n * MS for n in range(1, 101))
    assert (wait.count, wait.p50_ms, wait.p99_ms, wait.max_ms) == (100, 50.0, 99.0, 100.0)


def test_the_table_shows_rows_totals_marks_and_a_sentence() -> None:
    clean = Run()
    text = render(json.loads(as_json(clean.judge())))
    assert "thing" in text
    assert "total" in text
    assert "✗" not in text
    assert "3 of 3 units were sold" in text
    one_unit_too_many(clean)
    broken = render(json.loads(as_json(clean.judge())), colour=True)
    assert "The books do not balance: oversold" in broken
    assert "3 units, 4 given by the books" in broken
