"""The checker: a clean run passes, each single fault put into it is found and named, and no clean doubt is a fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.checker.__main__ import main
from loadtest.checker.stock_checks import IN_THE_BOOKS
from loadtest.checker.verdict import judge
from loadtest.record.expectations import (
    EXPECTATIONS,
    FULL_SET,
    OF_A_SALE,
    OF_SHORT_LINES,
    RunFacts,
    expectations_from,
)
from loadtest.record.history import FAIL, OK, UNKNOWN, History, Operation
from tests.rules.sources import ROOT
from tests.support.runs.hand_made_faults import FAULTS, break_invariant, overtaken, sent_away_too_early, sold_to_nobody
from tests.support.runs.hand_made_runs import MS, SALE, SECOND, Run, write_books, write_machine
from tests.support.runs.hollow_runs import HOLLOW, nobody_left, nobody_paid_late


def test_a_clean_run_passes() -> None:
    run = Run()
    verdict = run.judge()
    (row,) = verdict.sales
    assert verdict.ok, run.faults()
    assert (row.asked, row.repeated, row.wishes, row.admitted) == (10, 2, 8, 7)
    assert (row.units_sold, row.units_free, row.moved_up, row.paid_late) == (3, 0, 2, 1)
    assert row.results == {"paid": 3, "refunded": 1, "cancelled": 2, "sold_out": 2}


@pytest.mark.parametrize("status", [502, 504])
def test_what_a_proxy_says_for_no_answer_is_cleared_up_by_asking_again(status: int) -> None:
    """The control: 500 is an answer that nobody foresees, and so is the same status with a code of the shop."""
    for code, told, faults in (
        ("", status, {}),
        ("", 500, {"unforeseen answer": 1}),
        ("x", status, {"unforeseen answer": 1}),
    ):
        run = Run()
        first = run.of("r1", "ask")[0]
        run.operations.insert(
            0, replace(first, outcome=UNKNOWN, status=told, code=code, seq=0, state="", request_id="")
        )
        assert run.faults() == faults
    never = Run()
    never.add("ask", "b9", outcome=UNKNOWN, status=status, click="first")
    assert never.details("unforeseen answer") == ["thing: key key-b9 of buyer b9 never got a definite answer"]


@pytest.mark.parametrize(("status", "code"), [(425, "sale_not_open"), (429, "rate_limited"), (503, "unavailable")])
@pytest.mark.parametrize(
    ("retry", "ends", "faults"),
    [("retry", "", 1), ("retry", "sold_out", 0), ("hasty", "sold_out", 0)],
    ids=["never answered", "answered at last", "a bot, answered at last"],
)
def test_who_is_told_to_come_again_must_be_answered_at_last(
    status: int, code: str, retry: str, ends: str, faults: int
) -> None:
    run, outcome = Run(), UNKNOWN if status == 503 else FAIL
    for click in ("first", *[retry] * 6):
        run.add("ask", "b9", outcome=outcome, status=status, code=code, click=click)
    if ends:
        run.add("ask", "b9", outcome=FAIL, status=409, code=ends, click=retry)
    assert run.faults() == ({"unforeseen answer": faults} if faults else {})


@pytest.mark.parametrize(("status", "outcome", "faults"), [(429, FAIL, 0), (503, UNKNOWN, 1), (0, UNKNOWN, 1)])
def test_a_bot_that_does_not_wait_may_be_kept_away_but_not_left_without_an_answer(
    status: int, outcome: str, faults: int
) -> None:
    run = Run()
    for click in ("first", *["hasty"] * 7):
        code = {429: "rate_limited", 503: "unavailable"}.get(status, "")
        run.add("ask", "b9", outcome=outcome, status=status, code=code, click=click)
    assert run.faults() == ({"unforeseen answer": faults} if faults else {})


def test_who_gets_a_token_at_last_or_is_killed_before_was_not_kept_out() -> None:
    run = Run()
    for _ in range(7):
        run.add("join", "", key="visit-1", outcome=UNKNOWN).sale = ""
    last = run.add("join", "", key="visit-1", outcome=OK, status=201)
    last.sale = ""
    assert run.faults() == {}
    last.outcome, last.status, last.code = UNKNOWN, 0, "unended"
    assert run.faults() == {}
    last.code = ""
    assert run.details("unforeseen answer") == ["1 buyers asked for a token again and again, and never got one"]


@pytest.mark.parametrize(("visits", "missing"), [(0, 0), (2, 0), (3, 1), (9, 7)])
def test_who_was_planned_and_never_came_makes_a_run_inconclusive(visits: int, missing: int) -> None:
    run = Run()
    for number in (0, 0, 1):
        run.add("join", "", key=f"visit-{number}", outcome=OK, status=201).sale = ""
    run.facts = RunFacts(visits=visits)
    assert run.faults() == ({"inconclusive": missing} if missing else {})
    if missing:
        assert run.details("inconclusive") == [f"{missing} of {visits} planned buyers never came"]
        run.cut_off.append("history-of-one.jsonl")  # its process was killed: that is said once
        assert run.faults() == {"record cut off": 1}


def test_a_late_payment_may_get_its_unit_again() -> None:
    run = Run()
    run.rewrite("r2", was="refunded", now="paid")
    for state in ("held", "paid"):
        run.rewrite("r7", was=state, now="sold_out")
    run.operations = [o for o in run.operations if not (o.request_id == "r7" and o.kind == "pay")]
    # r7 left before, so it was not passed over.
    run.rewrite("r7", was="sold_out", now="cancelled")
    assert run.faults() == {}


@pytest.mark.parametrize(("put_in", "expected"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_each_fault_is_found_and_nothing_else_is(put_in: Callable[[Run], None], expected: dict[str, int]) -> None:
    run = Run()
    put_in(run)
    assert run.faults() == expected
    assert not run.judge().ok


NAMED = [
    ("oversold", "I1"), ("sold twice", "I3"), ("sold twice", "I14"), ("lost", "I4"), ("from nowhere", "I5b"),
    ("out of order", "I8"), ("told wrongly", "I19"), ("undersold", "I9"), ("charged for nothing", "I12"),
    ("limit broken", "I7"), ("hold ended twice", "I10"),
]  # fmt: skip


def test_every_invariant_with_a_check_is_one_of_the_audit() -> None:
    assert [(name, each) for name, all_ in IN_THE_BOOKS.items() for each in all_] == NAMED
    source = "".join(path.read_text() for path in (ROOT / "inventory" / "audit").glob("*.py"))
    assert {number for _, number in NAMED} <= set(re.findall(r'"(I\d+\w?)",\s*_\("', source))


@pytest.mark.parametrize(("name", "number"), NAMED)
def test_what_only_the_books_know_has_the_name_of_its_check(name: str, number: str) -> None:
    run = Run()
    break_invariant(run, number)
    assert run.faults() == {name: 1, "audit broken": 1}


def test_every_check_has_a_run_that_only_it_finds() -> None:
    alone = {name for _, expected in FAULTS for name in expected if len(expected) == 1}
    assert alone | {"inconclusive"} == {check.name for check in Run().judge().checks}


@pytest.mark.parametrize(("put_in", "said", "count"), HOLLOW, ids=[fault.__name__ for fault, *_ in HOLLOW])
def test_a_run_that_left_something_out_proves_nothing(put_in: Callable[[Run], None], said: str, count: int) -> None:
    run = Run()
    put_in(run)
    assert run.faults() == {"inconclusive": count}
    assert any(said in detail for detail in run.details("inconclusive"))


def test_a_shop_without_payments_is_not_asked_for_them() -> None:
    run = Run()
    nobody_paid_late(run)
    assert run.faults() == {"inconclusive": 1}
    run.facts = RunFacts(expects=expectations_from(["sold_out", "paid", "double", "again", "retry"]))
    assert run.faults() == {}


def test_among_short_lines_it_is_enough_that_somebody_waited_in_one_of_them() -> None:
    """Nobody left the line of one of two sales. The controls: lines that are not short, and both sales."""
    run, other = Run(), Run()
    nobody_left(other)
    for operation in other.operations:
        operation.sale, operation.request_id = "other", operation.request_id and f"other-{operation.request_id}"

    def missing(expects: frozenset[str]) -> list[str]:
        history = History([*run.operations, *other.operations], [], files=1)
        checks = judge(history, {SALE: run.book, "other": other.book}, facts=RunFacts(expects=expects)).checks
        assert {check.name for check in checks if check.count} <= {"inconclusive"}
        return [text for check in checks for text in check.details]

    short = FULL_SET | OF_SHORT_LINES.keys()
    assert [OF_A_SALE["left"] in text for text in missing(FULL_SET)] == [True]
    assert not any(OF_A_SALE["left"] in text for text in missing(short))
    nobody_left(run)
    assert any(OF_A_SALE["left"] in text for text in missing(short))


def test_every_expectation_has_a_run_that_lacks_only_it() -> None:
    assert {said for _, said, count in HOLLOW if count == 1} == set(EXPECTATIONS.values())


def test_clicks_on_their_way_at_the_same_time_may_stand_in_any_order() -> None:
    run = Run()
    (first,), (second,) = run.of("r2", "ask"), run.of("r3", "ask")
    second.began_ns = first.began_ns
    overtaken(run)
    assert run.faults() == {}


def test_a_refusal_before_admission_does_not_date_the_wish() -> None:
    run = Run()
    early = replace(run.of("r3", "ask")[0], began_ns=1, ended_ns=2, outcome=FAIL, status=429, code="rate_limited")
    run.operations.insert(0, replace(early, request_id="", seq=0, state=""))
    overtaken(run)
    assert run.faults() == {"out of order": 1}


def test_an_unknown_answer_maps_to_none_or_one() -> None:
    shed = {"outcome": UNKNOWN, "status": 503, "code": "unavailable"}
    for decided, faults in ((7, {}), (8, {}), (9, {"from nowhere": 1})):
        run = Run()
        run.add("ask", "b9", click="first", **shed)
        run.add("ask", "b9", click="retry", outcome=FAIL, status=410, code="sale_closed")
        run.after["decided"] = decided
        assert run.faults() == faults


def test_units_that_came_back_after_everybody_was_sent_away_are_no_undersell() -> None:
    run = Run()
    run.of("r7", "recheck")[0].state = "expired"
    run.of("r7", "pay")[0].state = "held"
    run.after.update(available=1, sold=2)
    assert run.faults() == {}


def unanswered_asks(run: Run) -> None:
    """Let three more have asked before b9, whose answers were lost."""
    for number in (11, 12, 13):
        lost = run.add("ask", f"b{number}", outcome=UNKNOWN, click="first")
        lost.began_ns = lost.ended_ns = 1
        run.add("ask", f"b{number}", outcome=FAIL, status=410, code="sale_closed", click="retry")


DOUBTS: dict[str, Callable[[Run], object]] = {
    "answers that were lost": unanswered_asks,
    "others asked at once": lambda run: [setattr(run.of(f"r{n}", "ask")[0], "began_ns", 1) for n in (1, 2, 3)],
    "a clock that says nothing of theirs": lambda run: setattr(run.operations[-1], "clock", "there"),
    "more was wanted than there is": lambda run: setattr(run.operations[-1], "quantity", 4),
    "units that staff took away": lambda run: run.book["before"]["counts"].update(total=6),
    "units that were sold before": lambda run: run.book["before"]["counts"].update(available=0),
    "a line from before": lambda run: run.book["before"]["counts"].update(waiting=1),
    "nobody looked before": lambda run: run.book.update(before=None),
    "one whom no record has": lambda run: run.after.update(decided=8),
}


@pytest.mark.parametrize("put_in", DOUBTS.values(), ids=DOUBTS)
def test_who_was_sent_away_at_the_door_was_so_rightly_where_there_is_a_doubt(put_in: Callable[[Run], object]) -> None:
    run = Run()
    sent_away_too_early(run)
    assert run.faults() == {"undersold": 1}  # the control
    put_in(run)
    assert "undersold" not in run.faults()


def test_a_unit_sold_to_somebody_who_never_got_an_answer_is_accounted_for() -> None:
    run = Run()
    sold_to_nobody(run)
    assert run.faults() == {"unaccounted": 1}
    run.add("ask", "b9", click="first", outcome=UNKNOWN, status=503, code="unavailable")
    run.add("ask", "b9", click="retry", outcome=UNKNOWN, status=0)
    assert "unaccounted" not in run.faults()


def test_an_empty_run_is_inconclusive() -> None:
    verdict = judge(History([], [], files=1), {SALE: Run().book})
    assert "inconclusive" in {check.name for check in verdict.checks if check.count}


@pytest.mark.parametrize(
    ("sold", "free"), [(3, 0), (2, 1), (2, 0)], ids=["it happened", "it did not", "a unit is gone"]
)
def test_a_payment_that_was_never_answered_happened_or_did_not(sold: int, free: int) -> None:
    run = Run()
    for call in run.of("r7", "pay", "recheck"):
        call.outcome, call.status, call.state, call.seq = UNKNOWN, 0, "", 0
    run.after.update(sold=sold, available=free)
    assert run.faults() == ({} if sold + free == 3 else {"unaccounted": 1})


# Clients that were killed: nobody asked on, so their silence is no fault of the shop.


@pytest.mark.parametrize(("sold", "free"), [(3, 0), (2, 1)], ids=["the payment happened", "it did not"])
def test_a_payment_cut_off_with_its_client_happened_or_did_not(sold: int, free: int) -> None:
    run = Run()
    run.kill_client_of("r7", during="pay")
    run.after.update(sold=sold, available=free)
    assert run.faults() == {"record cut off": 1}


@pytest.mark.parametrize("decided", [6, 7])
def test_an_ask_cut_off_with_its_client_was_admitted_or_was_not(decided: int) -> None:
    run = Run()
    run.kill_client_of("r8", during="ask")
    run.add("ask", "b4", outcome=FAIL, status=409, code="sold_out", click="again")
    run.after["decided"] = decided
    assert run.faults() == {"record cut off": 1}


def test_a_place_whose_client_was_killed_must_still_be_decided_in_the_books() -> None:
    run = Run()
    run.kill_client_of("r8", during="look")
    assert run.faults() == {"record cut off": 1}
    run.after["decided"] = 6
    assert run.faults() == {"record cut off": 1, "lost": 1}


def test_a_unit_told_to_a_client_that_was_killed_may_have_gone_to_the_next() -> None:
    run = Run()
    run.kill_client_of("r2", during="begin")
    assert run.faults() == {"record cut off": 1, "inconclusive": 2}  # nobody else's hold lapsed, nobody else paid late


# Several machines.


def two_machines(
    folder: Path, run: Run, *, drift_ns: int = 0, is_there: Callable[[Operation], bool] = lambda o: o.buyer == "b3"
) -> None:
    """Write the record as two machines, the second started at another time; b3 is there, or what is said."""
    there = [operation for operation in run.operations if is_there(operation)]
    here = [operation for operation in run.operations if not is_there(operation)]
    write_machine(folder, "here", here, clock="here", offsets_ns=(-SECOND, -SECOND))
    write_machine(folder, "there", there, clock="there", offsets_ns=(-90 * SECOND, -90 * SECOND + drift_ns))
    write_books(folder, run)


def test_a_place_may_be_looked_at_from_two_machines(tmp_path: Path) -> None:
    run = Run()
    (early,) = [look for look in run.of("r8", "look") if look.state == "waitlisted"]
    two_machines(tmp_path, run, is_there=lambda operation: operation is early)
    assert main([str(tmp_path)]) == 0


def test_clocks_of_two_machines_raise_no_false_alarm(tmp_path: Path) -> None:
    run = Run()
    two_machines(tmp_path, run)
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--clocks-agree-ms", "0"]) == 0
    overtaken(run)
    two_machines(tmp_path, run)
    assert main([str(tmp_path)]) == 0  # nobody said that these times can be compared


@pytest.mark.parametrize(
    ("agree_ms", "drift_ns", "code"),
    [("0", 0, 1), ("0.9", 0, 1), ("1.1", 0, 0), ("0", 6 * MS, 0), ("1000", 0, 0)],
)
def test_who_was_surely_first_on_another_machine_was_first(
    tmp_path: Path, agree_ms: str, drift_ns: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run()
    overtaken(run)
    two_machines(tmp_path, run, drift_ns=drift_ns)
    assert main([str(tmp_path), "--clocks-agree-ms", agree_ms]) == code
    assert ("request r3 (seq 20) overtook r2 (seq 30)" in capsys.readouterr().out) is bool(code)


def test_a_real_overtaking_on_one_clock_is_found_beside_another_machine(tmp_path: Path) -> None:
    run = Run()
    for operation in run.operations:
        if operation.request_id in ("r7", "r8") and operation.seq:
            operation.seq = {70: 80, 80: 70}[operation.seq]
    run.rewrite("r8", was="sold_out", now="cancelled")
    two_machines(tmp_path, run)
    assert main([str(tmp_path)]) == 1


def test_the_records_of_two_machines_may_lie_in_two_folders(tmp_path: Path) -> None:
    run = Run()
    two_machines(tmp_path, run)
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "history-there.jsonl").rename(other / "history-there.jsonl")
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path), str(other)]) == 0
