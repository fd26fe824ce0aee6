"""What staff and the shop's own pace do to a run, and what sold before it: the checker accuses nobody who is honest,
and is not blind for it. Each case has its control.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.checker.__main__ import main
from loadtest.checker.buyer_record import BuyerRecord
from loadtest.checker.latency import to_refusal
from loadtest.checker.table import render
from loadtest.checker.verdict import AUDIT_FILE, VERDICT_FILE
from loadtest.record.history import FAIL, FILE_PREFIX
from loadtest.report import write_report
from tests.support.runs.hand_made_faults import a_unit_left, held_by_four_at_once, no_audit, sent_away_too_early
from tests.support.runs.hand_made_runs import SALE, Run, write_books, write_machine


def test_units_loaded_after_all_were_sold_are_left_for_those_who_come_later() -> None:
    run = Run()
    run.pause(run.of("r2", "look")[-1], seconds=2)
    run.after.update(total=5, available=2)
    assert run.faults() == {}
    run.book["before"]["counts"].update(total=5, available=5)
    assert run.faults()["undersold"] > 0  # they were there from the beginning


def correct_stock(run: Run, *, out: int, back: int) -> None:
    """Let staff take units out of stock during the run, and put some in."""
    run.book["before"]["counts"]["put_in"] = 3
    run.after["put_in"] = 3 + back
    run.after["total"] += back - out


@pytest.mark.parametrize(("units", "faults"), [(0, 1), (2, 1), (3, 0)])
def test_units_that_were_away_for_a_while_were_not_free_at_the_door(units: int, faults: int) -> None:
    """Three are there, and nobody came before b9: with two of them away, one was still free."""
    run = Run()
    sent_away_too_early(run)
    correct_stock(run, out=units, back=units)
    assert run.faults().get("undersold", 0) == faults


@pytest.mark.parametrize(("units", "faults"), [(0, 1), (1, 0)])
def test_a_unit_that_was_put_back_may_have_come_after_all_were_sent_away(units: int, faults: int) -> None:
    run = Run()
    a_unit_left(run)
    correct_stock(run, out=units, back=units)
    assert run.faults().get("undersold", 0) == faults


@pytest.mark.parametrize(("units", "faults"), [(0, 1), (1, 0)])
def test_units_that_buyers_had_before_staff_took_them_away_were_there(units: int, faults: int) -> None:
    """Four had a unit at one moment: there were four, and at rest three are left. The control: there never were."""
    run = Run()
    held_by_four_at_once(run)
    run.book["before"]["counts"].update(total=3 + units, available=3 + units, put_in=3 + units)
    run.after["put_in"] = 3 + units
    assert run.faults().get("oversold", 0) == faults


def test_the_verdict_and_its_page_say_that_staff_changed_the_stock(tmp_path: Path) -> None:
    """The controls are the same run without a change, and one after which nobody could look."""
    for units, spoil, code in ((0, None, 0), (2, None, 0), (0, no_audit, 1)):
        run = Run()
        correct_stock(run, out=units, back=units)
        if spoil:
            spoil(run)
        write_machine(tmp_path, "here", run.operations, clock="here")
        write_books(tmp_path, run)
        assert main([str(tmp_path)]) == code
        told = "Staff changed the stock of thing meanwhile: "
        table = render(json.loads((tmp_path / VERDICT_FILE).read_text()))
        pages = (table, write_report(tmp_path).read_text())
        assert [told in text for text in pages] == [units > 0] * 2
        assert [f"{told}{units} in, {units} out. " in text for text in pages] == [units > 0] * 2


def test_who_comes_after_a_load_gets_units_that_those_before_were_not_told_of() -> None:
    run = Run()
    run.tell(9, "ask", "queued", status=202, click="first")
    for kind in ("look", "recheck"):
        run.tell(9, kind, "held")
    run.after.update(total=4, held=1, decided=8)
    assert "out of order" not in run.faults()
    for total, number in ((3, 9), (4, 10)):  # without the load, or with one more than was loaded
        run.after.update(total=total)
        for kind, state in (("ask", "queued"), ("look", "held"), ("recheck", "held")):
            run.tell(number, kind, state, status=202 if kind == "ask" else 200, click="first")
        assert "out of order" in run.faults()


@pytest.mark.parametrize(("seconds", "faults"), [(0.1, 0), (2, 1)])
def test_a_unit_that_came_back_a_moment_before_is_not_yet_offered(seconds: float, faults: int) -> None:
    run = Run()
    run.rewrite("r1", was="paid", now="cancelled")
    for number in (5, 7):
        run.rewrite(f"r{number}", was="paid", now="cancelled")
    run.after.update(available=3, sold=0)
    run.now_ns += int(seconds * 1e9)
    run.add("ask", "b9", outcome=FAIL, status=409, code="line_full", click="first")
    assert run.faults().get("undersold", 0) == (3 if faults else 0)


def test_buyers_are_told_of_no_units_that_were_sold_before_the_run() -> None:
    run = Run()
    for counts in (run.book["before"]["counts"], run.after):
        counts.update(total=13, sold=counts["sold"] + 10)
    assert run.faults() == {}
    run.rewrite("r8", was="sold_out", now="held")
    assert "told wrongly" in run.faults()


@pytest.mark.parametrize(("sold_before", "faults"), [(10, {"oversold": 1}), (9, {})])
def test_units_that_were_sold_before_the_run_are_none_that_its_buyers_can_have(
    sold_before: int, faults: dict[str, int]
) -> None:
    """Four had units of 13 at one moment. The control: when nine were sold before, four were there to have."""
    run = Run()
    held_by_four_at_once(run)
    run.book["before"]["counts"].update(total=13, sold=sold_before, available=13 - sold_before)
    run.after.update(total=13, sold=sold_before + 3, available=10 - sold_before)
    assert run.faults() == faults


def test_who_is_asked_to_come_again_is_not_refused() -> None:
    run = Run()
    for _ in range(7):
        run.add("ask", "b9", outcome=FAIL, status=429, code="rate_limited", click="first")
    before = to_refusal([BuyerRecord(SALE, run.operations)]).count
    run.add("ask", "b9", outcome=FAIL, status=409, code="sold_out", click="again")
    assert to_refusal([BuyerRecord(SALE, run.operations)]).count == before + 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (AUDIT_FILE, b'{"drop": {"after": 7}}'),
        (AUDIT_FILE, b'{"drop": {"after": {"counts": [1]}}}'),
        (f"{FILE_PREFIX}here.jsonl", b'{"wall_minus_monotonic_ns": "five"}\n'),
        (f"{FILE_PREFIX}here.jsonl", b'{"kind": "ask", "outcome": "invoke"}\n'),
    ],
)
def test_what_is_damaged_inside_is_no_verdict(
    tmp_path: Path, name: str, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run()
    write_machine(tmp_path, "here", run.operations, clock="here")
    write_books(tmp_path, run)
    assert main([str(tmp_path)]) == 0
    (tmp_path / name).write_bytes(text)
    assert main([str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err
