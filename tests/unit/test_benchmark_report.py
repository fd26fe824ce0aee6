"""A benchmark's report must fail when a floor is missed, and show the same in the table, the page and the JSON."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from loadtest.benchmarks.bounds import admission_figures
from loadtest.benchmarks.figures import Figure, number, ratio
from loadtest.benchmarks.loader import Load, LoadFailed, is_whole
from loadtest.benchmarks.report import Report, as_json, markdown, sentence, table

GOOD = Figure(name="gate ÷ no-op", value=0.34, at_least=0.25, aim=0.4)
PRINTED = Figure(name="no-op", value=48_123.4, unit="requests/s")


def report_of(*figures: Figure, faults: tuple[str, ...] = (), quick: bool = False) -> Report:
    return Report(
        date="2026-01-02 03:04 UTC",
        revision="abc123",
        quick=quick,
        figures=figures,
        facts={"Versions": {"python": "3.11.7", "valkey": "9.1"}},
        method=["Everything in one run."],
        samples=[{"side": "no-op", "per_second": 48_123.4}],
        faults=faults,
    )


@pytest.mark.parametrize(
    ("figure", "ok"),
    [
        (Figure(name="at the floor", value=0.25, at_least=0.25), True),
        (Figure(name="below the floor", value=0.2499, at_least=0.25), False),
        (Figure(name="at the ceiling", value=200, at_most=200), True),
        (Figure(name="above the ceiling", value=200.1, at_most=200), False),
        (Figure(name="below the aim only", value=0.3, at_least=0.25, aim=0.4), True),
        (Figure(name="without a bound", value=-1), True),
        (Figure(name="nothing was measured", value=ratio(1, 0), at_least=0.25), False),
    ],
    ids=lambda value: value.name if isinstance(value, Figure) else "",
)
def test_figure_keeps_its_bound(figure: Figure, ok: bool) -> None:
    assert figure.ok is ok
    assert report_of(GOOD, figure).ok is ok


def test_fault_fails_a_run_whose_floors_hold() -> None:
    report = report_of(GOOD, faults=("I1 nothing is oversold: 101 of 100",))
    assert not report.ok
    assert "I1 nothing is oversold" in sentence(report)


def test_sentence_names_every_missed_floor_with_its_value() -> None:
    text = sentence(report_of(GOOD, Figure(name="road", value=5_999, at_least=6_000)))
    assert text == "✗ road is 5,999, must be ≥ 6,000."
    assert sentence(report_of(GOOD)) == "✓ Every floor holds."


def test_table_has_a_line_a_figure_with_floor_aim_and_mark() -> None:
    head, rule, good, printed, bad = table([GOOD, PRINTED, Figure(name="web", value=250, at_most=200)]).splitlines()
    assert head.split() == ["figure", "measured", "unit", "floor", "aim"]
    assert set(rule) == {"─"}
    assert good.split() == ["gate", "÷", "no-op", "0.34", "≥", "0.25", "0.40", "✓"]
    assert printed.split() == ["no-op", "48,123", "requests/s"]
    assert bad.split() == ["web", "250", "≤", "200", "✗"]


def test_page_holds_figures_method_facts_and_measurements() -> None:
    page = markdown(report_of(GOOD, PRINTED))
    for part in (
        "| gate ÷ no-op | 0.34 |",
        "✓ Every floor holds.",
        "- Everything in one run.",
        "valkey 9.1",
        "`abc123`",
    ):
        assert part in page
    assert "| side | per second |" in page
    assert "quick run" not in page
    assert "too short to be quoted" in markdown(report_of(GOOD, quick=True))


def test_json_says_for_each_figure_whether_it_holds() -> None:
    whole = json.loads(as_json(report_of(GOOD, Figure(name="empty", value=float("nan"), at_least=1))))
    assert whole["ok"] is False
    assert [(each["name"], each["value"], each["ok"]) for each in whole["figures"]] == [
        ("gate ÷ no-op", 0.34, True),
        ("empty", None, False),
    ]
    assert whole["facts"]["Versions"]["python"] == "3.11.7"


def test_admission_figures_take_the_middle_of_each_side() -> None:
    turns = [
        FakeTurn(side, rate)
        for side, rates in {
            "no-op": (10, 50_000, 40_000),
            "gate": (16_000, 1, 99_000),
            "gate everysec": (20_000,) * 3,
            "plain view": (2_000, 1_000, 90_000),
        }.items()
        for rate in rates
    ]
    by_name = {figure.name: figure for figure in admission_figures(turns)}  # type: ignore[arg-type]
    assert by_name["gate ÷ no-op"].value == pytest.approx(0.4)
    assert by_name["gate ÷ no-op, per second of server CPU"].value == pytest.approx(0.4)
    assert by_name["gate ÷ plain view"].value == pytest.approx(8)
    assert by_name["gate, always ÷ everysec"].value == pytest.approx(0.8)
    assert all(figure.ok for figure in by_name.values())


class FakeTurn:
    def __init__(self, side: str, per_second: float) -> None:
        self.side = side
        self.per_second = per_second
        self.busy = 0.5


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\n{", False),
        (b"HTTP/1.1 202 Accepted\r\ncontent-len", False),
        (b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", True),
    ],
)
def test_loader_knows_a_whole_answer(data: bytes, whole: bool) -> None:
    assert is_whole(data) is whole


def test_loader_refuses_an_answer_without_length() -> None:
    with pytest.raises(LoadFailed, match="content-length"):
        is_whole(b"HTTP/1.1 202 Accepted\r\n\r\n{}")


def test_load_counts_only_the_window() -> None:
    load = Load(began_at=0.0, seconds=2.0, answered=4, statuses=Counter({"202": 6}), waits_ms=[1.0, 2.0, 3.0, 9.0])
    assert load.per_second == 2
    assert load.wait_ms(0.5) == 3.0
    assert load.wait_ms(0.99) == 9.0


@pytest.mark.parametrize(("value", "text"), [(0.345, "0.34"), (99.994, "99.99"), (12_345.6, "12,346"), (-0.5, "-0.50")])
def test_number_is_as_exact_as_its_size_needs(value: float, text: str) -> None:
    assert number(value) == text
