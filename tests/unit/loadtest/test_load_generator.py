"""The load generator's own CPU: a sustained share above the bound is found and makes a planned run void."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from loadtest.checker.load_generator import (
    FILE_PREFIX,
    NS,
    LoadMeter,
    OwnLoad,
    ProcessLoad,
    busiest_share,
    load_generator,
    read_load,
)
from loadtest.checker.table import render
from loadtest.checker.verdict import judge, judge_folder
from loadtest.record.history import FAIL, History, HistoryWriter, Operation

PLANNED = Operation(kind="ask", sale="a", began_ns=1, planned_ns=1, outcome=FAIL, status=409, code="sold_out")
UNPLANNED = Operation(kind="ask", began_ns=1)


def samples(*shares: float, step_seconds: float = 1.0) -> list[tuple[int, int]]:
    """Return samples of a process that was so busy in each step."""
    at = cpu = 0.0
    found = [(0, 0)]
    for share in shares:
        at, cpu = at + step_seconds * NS, cpu + share * step_seconds * NS
        found.append((int(at), int(cpu)))
    return found


@pytest.mark.parametrize(
    ("shares", "share"),
    [
        ([0.2] * 30, 0.2),
        ([0.2] * 10 + [1.0] * 10 + [0.2] * 10, 1.0),
        ([0.2] * 10 + [1.0] * 5 + [0.2] * 15, 0.6),  # a burst is not sustained
        ([1.0, 1.0, 0.4], 0.8),  # a run that is shorter than the stretch counts as a whole
        ([], 0.0),
    ],
)
def test_the_busiest_sustained_stretch_counts(shares: list[float], share: float) -> None:
    assert busiest_share(samples(*shares)) == pytest.approx(share, abs=0.001)


def _load(share: float) -> OwnLoad:
    return OwnLoad(share, share > 0.9, [ProcessLoad("one", share)])


@pytest.mark.parametrize(
    ("share", "operation", "void"), [(0.91, PLANNED, True), (0.9, PLANNED, False), (0.99, UNPLANNED, False)]
)
def test_a_plan_that_could_not_be_kept_makes_the_run_void(share: float, operation: Operation, void: bool) -> None:
    faults = list(load_generator(History([operation], [], 1), _load(share)))
    assert [fault.detail.startswith("VOID: one was busy at 91%") for fault in faults] == ([True] if void else [])


def test_a_void_run_is_said_to_prove_nothing() -> None:
    verdict = judge(History([PLANNED], [], 1), {"a": {}}, load=_load(0.95))
    assert not verdict.ok
    assert {check.name: check.count for check in verdict.checks}["load generator"] == 1
    assert verdict.load is not None
    assert verdict.load.void
    assert "proves nothing: " in render(asdict(verdict))
    assert "used 95% of a core: these waits are VOID" in render(asdict(verdict))
    assert "load generator" not in {check.name for check in judge(History([PLANNED], [], 1), {}).checks}


def test_what_a_process_writes_is_read_again_and_a_silent_one_is_named(tmp_path: Path) -> None:
    assert read_load(tmp_path) is None
    for name in ("damaged", "silent"):
        with HistoryWriter(tmp_path, process_name=name):
            pass
    (tmp_path / f"{FILE_PREFIX}damaged.json").write_text('{"clock":')
    meter = LoadMeter(tmp_path, begins_ns=5)
    meter.sample()
    _ = sum(range(300_000))  # uses some CPU
    meter.close()
    load = read_load(tmp_path)
    assert load is not None
    assert load.missing == ["damaged", "silent"]
    assert 0 < load.cpu_share < 2
    assert [fault.detail for fault in load_generator(History([], [], 1), load)] == [
        "damaged did not say how busy it was",
        "silent did not say how busy it was",
    ]


def test_a_record_from_before_that_says_how_late_each_sample_was_is_read(tmp_path: Path) -> None:
    record = {"clock": "here", "begins_ns": 0, "samples": [(*sample, 1.5) for sample in samples(*[0.2] * 30)]}
    (tmp_path / f"{FILE_PREFIX}old.json").write_text(json.dumps(record))
    assert read_load(tmp_path) == OwnLoad(0.2, False, [ProcessLoad("old", 0.2)])


def write_process(folder: Path, name: str, operation: Operation, *, busy: float | None) -> None:
    """Write what one process keeps; busy: the share of a core it says it used, None for one that says nothing."""
    with HistoryWriter(folder, process_name=name) as history:
        history.add(operation)
    if busy is not None:
        record = {"clock": name, "begins_ns": 0, "samples": samples(*[busy] * 30)}
        (folder / f"{FILE_PREFIX}{name}.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("busy", "faults"),
    [(0.2, []), (0.99, ["VOID: second was busy at 99% of a core, more than 90%"]),
     (None, ["second did not say how busy it was"])],
)  # fmt: skip
def test_each_machine_says_in_its_own_folder_how_busy_it_was(
    busy: float | None, faults: list[str], tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write_process(here, "first", PLANNED, busy=0.2)
    write_process(there, "second", PLANNED, busy=busy)
    verdict = judge_folder(here, there, books={})
    assert [check.details for check in verdict.checks if check.name == "load generator"] == [faults]


def test_a_planned_run_whose_load_nobody_measured_is_named(tmp_path: Path) -> None:
    """The control: without a plan nothing depends on it, and the check is left out."""
    for operation, told in ((PLANNED, [["silent did not say how busy it was"]]), (UNPLANNED, [])):
        write_process(tmp_path, "silent", operation, busy=None)
        verdict = judge_folder(tmp_path, books={"a": {}})
        assert [check.details for check in verdict.checks if check.name == "load generator"] == told
        assert "busiest process" not in render(asdict(verdict))
