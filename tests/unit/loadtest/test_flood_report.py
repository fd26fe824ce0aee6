"""The report of a flood: it says what the verdict says, keeps the burst apart, marks faults, and needs nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loadtest.fault_marks import clear_faults, mark_fault, read_faults
from loadtest.fault_marks import main as mark_main
from loadtest.record.facts import command_line
from loadtest.record.history import new_run_folder
from loadtest.report import NoRun, write_report
from loadtest.report.__main__ import main
from loadtest.report.charts import STACKED, Chart, Flag, Series, nice_step, nice_top
from loadtest.report.index import NO_VERDICT, STOPPED_EARLY, rows_of, write_index, write_unjudged
from loadtest.report.page import charts_of
from loadtest.report.reading import Look, Mark, Waited, read_run
from loadtest.report.timeline import burst_end, growth_a_second, in_parts, over_time, percentile, thinned
from loadtest.report.words import BAD, GOOD, VOID, sentence_of
from loadtest.users.crowd import Counters
from tests.support.runs.made_up_run import BURST_MS, BURST_SECONDS, FACTS, MS, SECONDS, STEADY_MS, UNITS, make_run, mark

HOSTILE = '<script>alert(1)</script>"onload="x'
LOADING = {"src", "href", "srcset", "action", "data", "poster", "xlink:href", "formaction", "background"}


class Parsed(HTMLParser):
    """What a browser would see of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.seen: list[str] = []
        self._hidden = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._hidden = tag == "style"
        self.links += [value or "" for name, value in attributes if name in LOADING]
        self.ids += [value or "" for name, value in attributes if name == "id"]
        assert not [name for name, _ in attributes if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.seen.append(data)

    @property
    def text(self) -> str:
        """The page's words, with one space between them."""
        return " ".join(" ".join(self.seen).split())


def report_of(folder: Path) -> Parsed:
    return Parsed(write_report(folder).read_text())


def test_the_page_says_the_verdict_first(tmp_path: Path) -> None:
    page = report_of(make_run(tmp_path))
    assert f"{UNITS} of {UNITS} units sold, each once." in page.text
    assert page.tags.count("h1") == 1
    assert page.text.index("Every check holds") < page.text.index("Second by second")


def test_a_broken_check_turns_the_page_red_and_stands_first(tmp_path: Path) -> None:
    make_run(tmp_path)
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    verdict["ok"] = False
    next(check for check in verdict["checks"] if check["name"] == "lost").update(count=3, details=["r1 is gone"])
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    page = report_of(tmp_path)
    assert "The books do not balance. Broken: lost." in page.text
    assert "units sold, each once" not in page.text
    assert "r1 is gone" in page.text.split("What was checked")[1].split("oversold")[0]


@pytest.mark.parametrize(
    ("broken", "ok", "state"),
    [((), True, GOOD), (("inconclusive",), False, VOID), (("inconclusive", "lost"), False, BAD), ((), False, VOID)],
    ids=["nothing", "the run only", "the run and the shop", "the word alone"],
)
def test_the_sentence_follows_the_checks(broken: tuple[str, ...], ok: bool, state: str) -> None:
    sale = {"total": 2, "units_sold": 2, "units_free": 0, "moved_up": 0}
    checks = [{"name": name, "count": int(name in broken)} for name in ("lost", "inconclusive")]
    assert sentence_of({"ok": ok, "sales": [sale], "checks": checks}).state == state


def test_a_green_word_over_a_broken_check_is_not_believed() -> None:
    verdict = {"ok": True, "sales": [], "checks": [{"name": "lost", "count": 1}]}
    assert sentence_of(verdict).state == BAD


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    make_run(tmp_path)
    mark(tmp_path, "kill -9 settler-1", at_seconds=3)
    text = write_report(tmp_path).read_text()
    page = Parsed(text)
    assert page.links
    assert [link for link in page.links if not link.startswith("#")] == []
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert not {"script", "link", "iframe", "object", "embed", "img", "form", "base"} & set(page.tags)
    assert re.findall(r"url\(|@import|image-set\(", text) == []
    assert "default-src 'none'" in text


def test_a_page_that_loads_something_would_be_found() -> None:
    """The control: every way out is seen."""
    page = Parsed('<img src="//elsewhere/a.png"><a href="https://elsewhere">x</a><script>1</script>')
    assert page.links == ["//elsewhere/a.png", "https://elsewhere"]
    assert "script" in page.tags


def test_every_id_is_given_once(tmp_path: Path) -> None:
    ids = report_of(make_run(tmp_path)).ids
    assert len(ids) == len(set(ids))


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    make_run(tmp_path, sku=HOSTILE, facts={**FACTS, "command": HOSTILE, "hardware": {HOSTILE: HOSTILE}})
    mark(tmp_path, HOSTILE, at_seconds=2)
    page = report_of(tmp_path)
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>") >= 4


def test_faults_are_marked_on_every_chart_over_time(tmp_path: Path) -> None:
    make_run(tmp_path)
    mark(tmp_path, "valkey stopped", at_seconds=6)
    mark(tmp_path, "kill -9 settler-1", at_seconds=3)
    run = read_run(tmp_path)
    assert [(round(one.at, 3), one.fault) for one in run.faults] == [(3, "kill -9 settler-1"), (6, "valkey stopped")]
    charts = charts_of(run, burst=1.0)
    assert len(charts) == 6
    places = [3 / run.seconds * 100, 6 / run.seconds * 100]
    for chart in charts:
        assert [flag.at for flag in chart.marks] == pytest.approx(places)
    page = report_of(tmp_path)
    assert page.links.count("#fault-1") == page.links.count("#fault-2") == 6


def test_without_faults_nothing_is_marked(tmp_path: Path) -> None:
    page = report_of(make_run(tmp_path))
    assert "Faults" not in page.text
    assert page.links == ["#verdict"]


def test_the_burst_is_kept_apart(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    asks = run.admissions + run.refusals
    end = burst_end(asks)
    assert end == BURST_SECONDS
    parts = in_parts("to refusal", run.refusals, end=end)
    assert (parts.burst.p99_ms, parts.steady.p99_ms, parts.steady.max_ms) == (BURST_MS, STEADY_MS, STEADY_MS)
    assert parts.burst.count + parts.steady.count == len(run.refusals)


def test_a_click_that_was_repeated_has_waited_since_the_first_time(tmp_path: Path) -> None:
    """The control: a record from before clicks were kept."""
    longest = {}
    for clicked_ms in (0, 100):
        (path,) = make_run(tmp_path / str(clicked_ms)).glob("history-*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if clicked_ms and line.get("kind") == "ask":
                line["clicked_ns"] = line["began_ns"] - clicked_ms * MS
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        run = read_run(path.parent)
        assert min(wait.began for wait in run.admissions) == 0
        longest[clicked_ms] = [max(wait.took_ms for wait in waits) for waits in (run.admissions, run.refusals)]
    assert longest == {0: [BURST_MS] * 2, 100: [BURST_MS + 100] * 2}


@pytest.mark.parametrize(
    ("waits", "end"),
    [
        ([Waited(at / 10, 20.0) for at in range(100)], 1.0),
        ([Waited(at / 10, 500.0 if at < 45 else 20.0) for at in range(100)], 4.5),
        ([Waited(at / 10, 1000.0 - at) for at in range(5)], 0.4),
        ([], 0.0),
    ],
    ids=["settled at once", "settled late", "too short to tell", "nobody asked"],
)
def test_where_the_burst_ends(waits: list[Waited], end: float) -> None:
    assert burst_end(waits) == end


def test_percentiles_are_those_of_each_step() -> None:
    waits = [Waited(0.1, float(ms)) for ms in range(1, 101)] + [Waited(2.2, 7.0)]
    assert percentile(waits, share=0.99, step=1.0) == [(0.5, 99.0), (2.5, 7.0)]
    assert percentile(waits, share=0.5, step=1.0) == [(0.5, 50.0), (2.5, 7.0)]


def test_a_sale_that_was_not_looked_at_keeps_its_count() -> None:
    looks = [Look(1.0, "a", {"sold": 1}), Look(1.5, "b", {"sold": 5}), Look(2.0, "a", {"sold": 3})]
    assert over_time(looks, "sold", sales=["a", "b"]) == [(1.5, 6.0), (2.0, 8.0)]


def test_growth_is_per_second() -> None:
    assert growth_a_second([(0.0, 0.0), (0.5, 50.0), (2.5, 60.0)], step=0.5) == [(0.25, 100.0), (1.5, 5.0)]


def test_thinning_keeps_both_ends() -> None:
    points = [(float(n), float(n)) for n in range(1000)]
    kept = thinned(points, limit=20)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert len(kept) <= 21


@pytest.mark.parametrize("highest", [0.3, 1, 7, 23, 24, 35, 99, 100, 101, 280, 999, 12_345])
def test_the_axis_is_round_and_high_enough(highest: float) -> None:
    top = nice_top(highest)
    assert highest <= top <= 2 * highest
    assert (top / nice_step(top)) == pytest.approx(round(top / nice_step(top)))


def test_layers_lie_on_each_other() -> None:
    low, high = Series("low", "sold", [(0.0, 1.0), (10.0, 4.0)]), Series("high", "free", [(0.0, 3.0), (10.0, 0.0)])
    chart = Chart(key="c", title="C", meaning="", unit="", series=[low, high], seconds=10, kind=STACKED, top=4.0)
    assert [shape.path for shape in chart.shapes] == [
        "M0.0 75.00L1000.0 0.00L1000.0 100.00L0.0 100.00Z",
        "M0.0 0.00L1000.0 0.00L1000.0 0.00L0.0 75.00Z",
    ]


def test_a_chart_has_its_figures_as_a_table_and_a_mark_stays_inside() -> None:
    line = Series("p99", "warn", [(0.0, 5.0), (4.0, 1234.5)])
    marks = [Mark(99.0, "late")]
    chart = Chart(key="c", title="C", meaning="", unit="ms", series=[line], seconds=8, faults=marks)
    assert chart.rows == [("0.0 s", ["5"]), ("4.0 s", ["1,234"])]
    assert chart.marks == [Flag(1, 100.0, "late", 0)]
    assert "1,234 at most after 4.0 s" in chart.description


def test_flags_that_are_near_stand_above_each_other() -> None:
    line, marks = Series("p99", "warn", [(0.0, 5.0)]), [Mark(at, "x") for at in (10.0, 12.0, 15.0, 30.0)]
    chart = Chart(key="c", title="C", meaning="", unit="ms", series=[line], seconds=100, faults=marks)
    assert [flag.row for flag in chart.marks] == [0, 1, 2, 0]
    assert chart.flag_rows == 3


def test_the_stock_begins_and_ends_as_the_audits_say(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    stock = {one.name: one.points for one in charts_of(run, burst=1.0)[0].series}
    assert (stock["free"][0], stock["free"][-1]) == ((0.0, UNITS), (run.seconds, 0.0))
    assert stock["sold"][-1] == (run.seconds, UNITS)
    assert run.seconds >= SECONDS - 1
    assert len(run.gaps) == 1


def test_what_was_not_told_is_called_so(tmp_path: Path) -> None:
    make_run(tmp_path, facts={})
    (tmp_path / "samples.jsonl").unlink()
    page = report_of(tmp_path)
    assert "PostgreSQL and Valkey not told" in page.text
    assert "Seed not told" in page.text
    told = report_of(make_run(tmp_path))
    assert "Valkey appendfsync always" in told.text
    assert "0123456789ab with local changes" in told.text


def test_a_folder_without_a_verdict_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoRun):
        write_report(tmp_path)
    assert main([str(tmp_path)]) == 2
    assert "has no finished run" in capsys.readouterr().err
    make_run(tmp_path)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")


def test_a_fault_can_be_marked_while_a_run_goes_on(tmp_path: Path) -> None:
    mark_fault(tmp_path, "kill -9 settler-1")
    assert mark_main(["valkey stopped", str(tmp_path)]) == 0
    with (tmp_path / "faults.jsonl").open("a") as file:
        file.write('{"fault": "cut o')
    assert [one["fault"] for one in read_faults(tmp_path)] == ["kill -9 settler-1", "valkey stopped"]
    assert mark_main(["x", str(tmp_path / "nowhere")]) == 2
    clear_faults(tmp_path)
    assert read_faults(tmp_path) == []


def test_no_token_is_written_down() -> None:
    words = ["/opt/venv/bin/python", "-m", "locust", "--audit-token", "-secret", "--audit-token=other", "--seed", "3"]
    assert command_line(words) == "python -m locust --audit-token '***' '--audit-token=***' --seed 3"


def test_every_run_is_listed_with_how_it_ended_the_newest_first(tmp_path: Path) -> None:
    for number, name in enumerate(("judged", "stopped", "under-way")):
        facts = FACTS | {"began_unix_ns": (number + 1) * 1_000_000_000}
        make_run(tmp_path / name, facts=facts | ({"stopped_early": True} if name == "stopped" else {}))
    (tmp_path / "under-way" / "verdict.json").unlink()
    (tmp_path / "no-run").mkdir()
    write_report(tmp_path / "judged")
    write_unjudged(tmp_path / "stopped")
    rows = rows_of(tmp_path)
    assert [(row.name, row.outcome) for row in rows] == [
        ("under-way", NO_VERDICT), ("stopped", STOPPED_EARLY),
        ("judged", f"{UNITS} of {UNITS} units sold, each once."),
    ]  # fmt: skip
    assert [row.report for row in rows] == ["", "stopped/report.html", "judged/report.html"]
    page = write_index(tmp_path).read_text()
    assert 'href="judged/report.html"' in page
    assert 'href="under-way' not in page


def test_names_in_the_list_are_text(tmp_path: Path) -> None:
    make_run(tmp_path / "run", facts={"host": "<script>alert(1)</script>"})
    assert "<script>" not in write_index(tmp_path).read_text()


def test_a_run_gets_a_folder_that_no_other_has(tmp_path: Path) -> None:
    folders = []
    for _ in range(3):
        folders.append(new_run_folder(tmp_path, name="smoke"))
        folders[-1].mkdir()
    assert len(set(folders)) == 3
    assert all("-smoke" in folder.name for folder in folders)


def test_a_run_that_was_stopped_early_says_what_all_its_processes_counted(tmp_path: Path) -> None:
    make_run(tmp_path)
    for name, attempts in (("one", 3), ("two", 4)):
        counters = Counters(attempts=attempts, planned=9, paid=1)
        (tmp_path / f"progress-{name}.json").write_text(json.dumps(asdict(counters)))
    page = Parsed(write_unjudged(tmp_path).read_text())
    assert "Purchase attempts 7 Admitted 0 Decided 0 Paid at once 2" in page.text
