"""A benchmark's report must fail when a floor is missed, and show the same in the table, the page and the JSON."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from loadtest.bench.gate import admission
from loadtest.bench.gate.admission import AdmissionPlan, Contender, Turn, measure_in_turns
from loadtest.bench.gate.report import (
    ADMISSION_SIDES,
    LONE,
    LONE_REPLICATED,
    WITH_LIMITS,
    WITHOUT_LIMITS,
    admission_figures,
)
from loadtest.bench.harness.benchmark import in_turns
from loadtest.bench.harness.charts import bars
from loadtest.bench.harness.report import (
    Comparison,
    Figure,
    Report,
    as_json,
    markdown,
    number,
    quantile,
    ratio,
    sentence,
    table,
)
from loadtest.bench.load.loader import UNAVAILABLE, Load
from loadtest.bench.load.loop import LoadFailed, is_whole
from loadtest.bench.load.subprocesses import hands_of
from loadtest.bench.locks_queue.lock_sides import FAIR, RAW, REDIS_PY
from loadtest.bench.locks_queue.queue_sides import DRAMATIQ, HUEY, OURS, RQ, SAQ
from loadtest.bench.locks_queue.report import crowd_figures, overlap_faults, pair_figures, queue_figures
from loadtest.bench.locks_queue.turns import LockCrowd, Visit, judge

GOOD = Figure(name="gate ÷ no-op", value=0.34, at_least=0.25, aim=0.4)
PRINTED = Figure(name="no-op", value=48_123.4, unit="requests/s")


def report_of(*figures: Figure, faults: tuple[str, ...] = (), quick: bool = False) -> Report:
    return Report(
        title="The gate",
        command="make bench-gate",
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
            "bare": (160_000,) * 3,
            "gate": (36_000, 1, 99_000),
            "two gates": (33_000,) * 3,
            "lone ask": (1_000,) * 3,
            "lone ask, replicated": (1_000,) * 3,
            "gate everysec": (45_000,) * 3,
            "replicated": (18_000, 0.25, 11_000),
            "plain tickets": (40_000,) * 3,
            "unmarked": (36_500,) * 3,
            "sold out": (60_000,) * 3,
            "limited": (51_000,) * 3,
            "sale page": (50_000,) * 3,
            "plain view": (1_000, 800, 90_000),
            # A slow minute falls on both of a pair: 0.98, 0.97 and 0.5.
            "with limits": (9_800, 97_000, 5_000),
            "without limits": (10_000, 100_000, 10_000),
        }.items()
        for rate in rates
    ]
    by_name = {figure.name: figure for figure in admission_figures(turns)}  # type: ignore[arg-type]
    assert by_name["gate ÷ no-op"].value == pytest.approx(0.9)
    assert by_name["gate: server CPU for one answer"].value == pytest.approx(0.5e6 / 36_000)
    assert by_name["gate ÷ bare"].value == pytest.approx(0.225)
    assert by_name["sold out ÷ no-op"].value == pytest.approx(1.5)
    assert by_name["gate ÷ plain view"].value == pytest.approx(36)
    assert by_name["sale page ÷ no-op"].value == pytest.approx(1.25)
    assert by_name["gate, always ÷ everysec"].value == pytest.approx(0.8)
    assert by_name["gate that waits for one replica ÷ gate"].value == pytest.approx(0.25)
    assert by_name["two gates ÷ gate, server CPU for one answer"].value == pytest.approx(36 / 33)
    assert all(figure.ok for figure in by_name.values())
    refused = "refusal by a limit ÷ sold-out answer, server CPU for one"
    assert by_name[refused].value == pytest.approx(60 / 51)
    assert by_name["admissions a second with limits ÷ without"].value == pytest.approx(0.97)
    slower = [turn for turn in turns if turn.side != "two gates"] + [FakeTurn("two gates", 32_000)] * 3
    assert [figure.name for figure in admission_figures(slower) if not figure.ok] == [  # type: ignore[arg-type]
        "two gates ÷ gate, server CPU for one answer"
    ]


def test_limits_may_cost_three_admissions_of_a_hundred() -> None:
    sides = [side for side, *_ in ADMISSION_SIDES] + [LONE, LONE_REPLICATED, WITHOUT_LIMITS]
    for rate, missed in ((9_700, False), (9_690, True)):
        turns = [FakeTurn(side, 10_000) for side in sides] + [FakeTurn(WITH_LIMITS, rate)]
        figures = {figure.name: figure for figure in admission_figures(turns)}  # type: ignore[arg-type]
        assert figures["admissions a second with limits ÷ without"].ok is not missed


@pytest.mark.parametrize(("unavailable", "missed"), [(0.001, []), (0.002, ["share of 503, worst turn"])])
def test_a_server_that_was_unavailable_in_one_turn_misses_its_floor(unavailable: float, missed: list[str]) -> None:
    sides = [side for side, *_ in ADMISSION_SIDES] + [LONE, LONE_REPLICATED, WITH_LIMITS, WITHOUT_LIMITS]
    turns = [FakeTurn(side, 10_000) for side in sides for _ in range(3)]
    turns[4].unavailable = unavailable
    found = [each.name for each in admission_figures(turns) if not each.ok]  # type: ignore[arg-type]
    assert [name for name in found if "503" in name] == missed


def test_a_turn_that_the_host_disturbed_is_measured_again_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {"shop": [0.0, 0.3, 0.2, 0.1, 0.9], "no-op": [0.06, 0.05]}
    measured: list[str] = []

    def measure(contender: Contender, *, plan: AdmissionPlan, loader_core: int) -> Turn:
        measured.append(contender.name)
        stolen = shares[contender.name].pop(0)
        return Turn(side=contender.name, per_second=1, busy=1, wait_p50_ms=1, wait_p99_ms=1, stolen=stolen)

    monkeypatch.setattr(admission, "measure", measure)
    sides = [Contender(server=None, slug="", buyers_per_second=0, name=name) for name in ("no-op", "shop")]  # type: ignore[arg-type]
    plan = AdmissionPlan(rounds=2, seconds=1, warm_up_seconds=0, connections=1)
    shares["no-op"].append(0.0)
    turns = measure_in_turns(sides, plan=plan, loader_core=0)
    # Twice at most: the last one counts, and its share is on the page.
    assert measured == ["no-op", "no-op", "shop", "shop", "shop", "shop", "no-op"]
    assert [(turn.side, turn.stolen) for turn in turns] == [
        ("no-op", 0.05), ("shop", 0.0), ("shop", 0.1), ("no-op", 0.0)
    ]  # fmt: skip


class FakeTurn:
    def __init__(self, side: str, per_second: float) -> None:
        self.side = side
        self.per_second = per_second
        self.busy = 0.5
        self.wait_p50_ms = 1.5
        self.stolen = self.unavailable = 0.0


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
    assert [quantile(load.waits_ms, share) for share in (0.5, 0.99)] == [3.0, 9.0]


def test_answers_that_are_allowed_also_are_counted_and_others_fail_the_load() -> None:
    found = Counter({"202": 998, "503": 2})
    load = Load(began_at=0.0, seconds=2.0, answered=4, statuses=found, waits_ms=[])
    load.must_be("202", of="the shop", also=["", UNAVAILABLE])
    assert load.unavailable == 0.002
    for also in ([], ["", "429"]):
        with pytest.raises(LoadFailed, match="every answer must be 202"):
            load.must_be("202", of="the shop", also=also)


@pytest.mark.parametrize(("value", "text"), [(0.345, "0.34"), (99.994, "99.99"), (12_345.6, "12,346"), (-0.5, "-0.50")])
def test_number_is_as_exact_as_its_size_needs(value: float, text: str) -> None:
    assert number(value) == text


def test_sides_take_turns_and_every_second_round_runs_backwards() -> None:
    turns = [side for _, side in in_turns("abc", rounds=3)]
    assert "".join(turns) == "abccbaabc"
    assert [number for number, _ in in_turns("ab", rounds=2)] == [0, 0, 1, 1]


def test_page_shows_comparisons_and_the_chart() -> None:
    sides = Comparison(title="Locks", head=("lock", "pairs/s", "fence"), rows=[("ours", "1,834", "yes")])
    report = replace(
        report_of(GOOD), comparisons=[sides], picture=("locks.svg", "Bars"), samples=[{"rounds": [1.5, 2]}]
    )
    page = markdown(report)
    assert "## Locks\n\n| lock | pairs/s | fence |\n| --- | ---: | --- |\n| ours | 1,834 | yes |" in page
    assert "![Bars](locks.svg)" in page
    assert "| 1.50 · 2 |" in page
    assert json.loads(as_json(report))["comparisons"][0]["rows"] == [["ours", "1,834", "yes"]]


def test_chart_draws_each_panel_to_its_own_scale() -> None:
    panels = {"pairs & more": {"ours": 200.0, "a <rival>": 50.0}, "ms": {"another": 0.0, "raw": 0.0}}
    text = bars(panels, ours=["ours"], limits=["raw"], description="bars")
    drawn = [
        (bar.get("class"), float(bar.get("width", 0)))
        for bar in ElementTree.fromstring(text).iter()  # noqa: S314 - we have just written it
        if "rect" in bar.tag
    ]
    assert [kind for kind, _ in drawn] == ["ours", "rival", "rival", "limit"]
    assert drawn[0][1] == pytest.approx(4 * drawn[1][1])
    assert "a &lt;rival&gt;" in text


HOLD = 1 / 128  # a fraction that adds up exactly


def turns_of(processes: int, *, turns: int, hold: float = HOLD) -> list[list[Visit]]:
    """Return visits of processes that take strict turns, each asking again when it has left."""
    visits: list[list[Visit]] = [[] for _ in range(processes)]
    for turn in range(turns):
        entered = turn * hold
        asked = max(0.0, entered - (processes - 1) * hold)
        visits[turn % processes].append((asked, entered, entered + hold))
    return visits


def test_crowd_in_strict_turns_is_even_and_never_two_at_once() -> None:
    crowd = judge(turns_of(4, turns=42), window=(9 * HOLD, 39 * HOLD))
    assert crowd.counts == [7, 7, 7, 7]
    assert crowd.per_second == pytest.approx(128)
    assert crowd.worst_to_mean == pytest.approx(1)
    assert (crowd.unevenness, crowd.overlaps) == (0, 0)


def test_crowd_with_a_starved_process_and_two_holders_is_seen() -> None:
    visits = turns_of(2, turns=100)
    visits.append([(0.1, 0.45, 0.46)])
    crowd = judge(visits, window=(0.0, 0.4))
    assert crowd.counts[2] == 0
    assert crowd.worst_wait_ms == pytest.approx(350)
    assert crowd.unevenness == pytest.approx(100)
    assert crowd.overlaps > 0
    assert overlap_faults({"some lock": [crowd], "none": []}) == [
        f"some lock had two holders at once {crowd.overlaps} times"
    ]


@pytest.mark.parametrize(("ours", "ok"), [([100.0, 80.0, 9.0], True), ([79.0, 79.0, 9.0], False)])
def test_lock_alone_is_compared_round_by_round(ours: list[float], ok: bool) -> None:
    rates = {FAIR: ours, REDIS_PY: [70.0, 70.0, 8.0], RAW: [100.0, 100.0, 10.0]}
    figures = pair_figures(rates, on_disk={FAIR: [1.0], REDIS_PY: [2.0], RAW: [1.0]})
    # The last round was disturbed for all sides alike: its ratio is as good as any.
    assert figures[2].value == pytest.approx(sorted([ours[0] / 100, ours[1] / 100, 0.9])[1])
    assert all(figure.ok for figure in figures) is ok


@pytest.mark.parametrize(
    ("crowd", "broken"),
    [
        (LockCrowd(per_second=95, counts=[20, 21], mean_wait_ms=90, worst_wait_ms=180, overlaps=0), []),
        (LockCrowd(per_second=94, counts=[20, 20], mean_wait_ms=90, worst_wait_ms=90, overlaps=0), ["acquisitions"]),
        (
            LockCrowd(per_second=99, counts=[20, 23], mean_wait_ms=90, worst_wait_ms=181, overlaps=0),
            ["worst", "furthest"],
        ),
    ],
)
def test_crowd_figures_name_what_is_broken(crowd: LockCrowd, broken: list[str]) -> None:
    rival = replace(crowd, per_second=100)
    failed = [figure.name for figure in crowd_figures({FAIR: [crowd], REDIS_PY: [rival]}) if not figure.ok]
    assert [name.split()[1] for name in failed] == broken


def test_queue_is_held_against_the_fastest_rival() -> None:
    rates = {OURS: [50_000.0], RQ: [9_999.0], HUEY: [10.0], DRAMATIQ: [10_001.0], SAQ: [1.0]}
    absolute, relative = queue_figures("enqueue", rates, at_least=40_000)
    assert absolute.ok
    assert "dramatiq" in relative.name
    assert not relative.ok
    assert queue_figures("enqueue", rates | {DRAMATIQ: [1.0]}, at_least=40_000)[1].ok


def nothing_to_load(*, side: str) -> None:
    assert side


def test_hand_is_another_process_and_hands_back_its_errors() -> None:
    with hands_of(["one"], redis_url="redis://none", load=nothing_to_load, cores=os.sched_getaffinity(0)) as hands:
        assert hands["one"].ask(os.getpid) != os.getpid()
        assert hands["one"].ask(os.getenv, key="REDIS_URL") == "redis://none"
        with pytest.raises(LoadFailed, match="JSONDecodeError"):
            hands["one"].ask(json.loads, s="no JSON")
        assert hands["one"].ask(json.loads, s="[1]") == [1]
        with pytest.raises(LoadFailed, match="its process ended"):
            hands["one"].ask(os._exit, status=3)
