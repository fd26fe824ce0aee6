"""The verdict: a clean run passes, and each single fault put into it is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtest import latency
from loadtest.history import FAIL, OK, UNKNOWN, History, HistoryWriter, Operation
from loadtest.table import render
from loadtest.verdict import AUDIT_FILE, VERDICT_FILE, Verdict, as_json, judge, main

MS = 1_000_000
SALE = "drop"


class Run:
    """A hand-made run: two units, four buyers, b1 and b2 get one each, b3 is told so in line, b4 at the door."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.now_ns = 0
        self.book: dict[str, Any] = {"sku": "thing", "per_buyer_limit": 1}
        self.book["before"] = {"ok": True, "invariants": [], "counts": _counts(available=2, held=0, decided=0)}
        self.book["after"] = {
            "ok": True,
            "invariants": [{"id": "I1", "name": "nothing is oversold", "ok": True, "detail": ""}],
            "counts": _counts(available=0, held=2, decided=3),
        }
        self.cut_off: list[str] = []
        self._play()

    def _play(self) -> None:
        self.add("ask", "b1", outcome=OK, status=202, request_id="r1", seq=11, state="queued", click="first")
        self.add("ask", "b1", outcome=OK, status=200, request_id="r1", seq=11, state="queued", click="double")
        self.add("ask", "b2", outcome=OK, status=202, request_id="r2", seq=12, state="queued", click="first")
        self.add("ask", "b3", outcome=OK, status=202, request_id="r3", seq=13, state="queued", click="first")
        self.add("ask", "b4", outcome=FAIL, status=409, code="sold_out", click="first")
        self.add("ask", "b4", outcome=FAIL, status=409, code="sold_out", click="again")
        for number, state in ((1, "held"), (2, "held"), (3, "sold_out")):
            for kind in ("look", "recheck"):
                self.add(
                    kind, f"b{number}", outcome=OK, status=200, request_id=f"r{number}", seq=10 + number, state=state
                )

    def add(self, kind: str, buyer: str, **values: Any) -> Operation:
        """Append an operation that takes a millisecond and begins after the one before."""
        self.now_ns += 2 * MS
        key = f"key-{buyer}" if kind == "ask" else ""
        times = {"began_ns": self.now_ns, "ended_ns": self.now_ns + MS, "clock": "here"}
        operation = Operation(kind=kind, buyer=buyer, sale=SALE, quantity=1, **({"key": key} | times | values))
        self.operations.append(operation)
        return operation

    def of(self, request_id: str, kind: str) -> list[Operation]:
        """Return the operations of one kind about one request."""
        return [o for o in self.operations if o.request_id == request_id and o.kind == kind]

    @property
    def after(self) -> dict[str, int]:
        """The audit's counts at rest."""
        counts: dict[str, int] = self.book["after"]["counts"]
        return counts

    def judge(self) -> Verdict:
        """Judge the run as it is now."""
        return judge(History(self.operations, self.cut_off, files=1), {SALE: self.book})

    def faults(self) -> dict[str, int]:
        """Return what was found, by the name of the check."""
        return {check.name: check.count for check in self.judge().checks if check.count}


def _counts(*, available: int, held: int, decided: int) -> dict[str, int]:
    counts = {"total": 2, "available": available, "held": held, "sold": 0, "queued": 0, "in_flight": 0}
    return counts | {"decided": decided, "units_held": held, "orders_held": held, "last_seq": 13}


def test_a_clean_run_passes() -> None:
    verdict = Run().judge()
    (row,) = verdict.sales
    assert verdict.ok
    assert (row.asked, row.repeated, row.wishes, row.admitted, row.units_given) == (6, 2, 4, 3, 2)
    assert row.results == {"held": 2, "sold_out": 2}


def test_a_paid_hold_is_still_a_clean_run() -> None:
    run = Run()
    run.of("r1", "recheck")[0].state = "paid"
    run.after.update(held=1, sold=1, units_held=1)
    assert run.faults() == {}


# One fault each: what is done to the clean run, and the checks that must see it.


def one_unit_too_many(run: Run) -> None:
    """The books give three of two units."""
    run.after.update(available=0, held=3, units_held=3)


def buyers_told_of_too_many(run: Run) -> None:
    """Three buyers were told "held", the books say two: oversold, as far as buyers can see."""
    for operation in run.of("r3", "look") + run.of("r3", "recheck"):
        operation.state = "held"


def free_units_below_zero(run: Run) -> None:
    """More was taken than there was."""
    run.after.update(available=-1)


def a_key_with_two_requests(run: Run) -> None:
    """The double click bought a second time."""
    run.operations[1].request_id = "r9"
    run.operations[1].seq = 14
    run.add("recheck", "b1", outcome=OK, status=200, request_id="r9", seq=14, state="sold_out")
    run.after["decided"] = 4


def a_request_with_two_keys(run: Run) -> None:
    """Two buyers share one request."""
    run.operations[2].request_id = "r1"
    run.operations[2].seq = 11


def more_orders_than_units(run: Run) -> None:
    """Orders hold a unit that the stock row never gave."""
    run.after["units_held"] = 3
    run.after["total"] = 3
    run.after["available"] = 0


def never_decided(run: Run) -> None:
    """An admitted request is still in line at rest."""
    for operation in run.of("r3", "look") + run.of("r3", "recheck"):
        operation.state = "queued"
    run.after["decided"] = 2


def forgotten(run: Run) -> None:
    """An admitted request is answered with 404 at rest, though it had been decided."""
    recheck = run.of("r3", "recheck")[0]
    recheck.outcome, recheck.status, recheck.code, recheck.state = FAIL, 404, "request_not_found", ""


def stranded(run: Run) -> None:
    """The shop itself still has somebody in flight."""
    run.after["in_flight"] = 1


def a_decision_not_in_the_books(run: Run) -> None:
    """A buyer was told of a decision that no order knows."""
    run.after["decided"] = 2


def a_decision_nobody_asked_for(run: Run) -> None:
    """The books have one order more than buyers can account for."""
    run.after["decided"] = 4


def shown_to_a_stranger(run: Run) -> None:
    """Another buyer can see the request."""
    run.add("look", "b4", outcome=OK, status=200, request_id="r1", seq=11, state="held")


def overtaken(run: Run) -> None:
    """b3 asked after b2 was answered and stands before b2."""
    for operation in run.operations:
        if operation.request_id in ("r2", "r3"):
            operation.seq = {12: 13, 13: 12}[operation.seq]


def the_same_place_twice(run: Run) -> None:
    """Two requests stand at the same place in line."""
    for operation in run.operations:
        if operation.request_id == "r3":
            operation.seq = 12


def a_hold_taken_back(run: Run) -> None:
    """Held, then sold out."""
    run.of("r2", "recheck")[0].state = "sold_out"


def a_place_that_changes(run: Run) -> None:
    """A request is told two places in line."""
    run.of("r2", "look")[0].seq = 99


def new_twice(run: Run) -> None:
    """Both clicks of a double click are called new."""
    run.operations[1].status = 202


def refused_after_admission(run: Run) -> None:
    """The repeat of an admitted request is refused."""
    run.add("ask", "b1", outcome=FAIL, status=409, code="limit_reached", click="again")


def a_unit_left(run: Run) -> None:
    """Somebody was sent away and a unit stayed free."""
    for operation in run.of("r2", "look") + run.of("r2", "recheck"):
        operation.state = "sold_out"
    run.after.update(available=1, held=1, units_held=1)


def over_the_limit(run: Run) -> None:
    """b1 has two units where one is allowed, under two keys."""
    for operation in run.operations:
        if operation.buyer == "b2":
            operation.buyer = "b1"


def a_server_error(run: Run) -> None:
    """An answer that no contract foresees, though the retry was served."""
    run.operations.insert(0, replace(run.operations[0], outcome=UNKNOWN, status=500, request_id="", seq=0, state=""))


def never_answered(run: Run) -> None:
    """One wish got no definite answer at all."""
    run.add("ask", "b5", outcome=UNKNOWN, status=0, click="first")


def a_strange_answer_at_the_door(run: Run) -> None:
    """Joining, which belongs to no sale, was answered with something unforeseen."""
    run.operations.append(Operation(kind="join", began_ns=1, ended_ns=2, outcome=UNKNOWN, status=502))


def nobody_sent_away(run: Run) -> None:
    """The sale never ran out."""
    run.operations = [operation for operation in run.operations if operation.buyer in ("b1", "b2")]
    run.operations[1].click = "again"
    run.add("ask", "b2", outcome=OK, status=200, request_id="r2", seq=12, state="held", click="double")
    run.after["decided"] = 2


def no_double_clicks(run: Run) -> None:
    """No click was sent beside another."""
    run.operations[1].click = "again"


def no_audit(run: Run) -> None:
    """The shop's books were not opened."""
    run.book["after"] = None


def an_audit_that_leaves_out_a_count(run: Run) -> None:
    """An audit without a count cannot clear anybody."""
    del run.after["sold"]


def an_invariant_broken(run: Run) -> None:
    """The shop's own audit found something."""
    run.book["after"]["invariants"][0].update(ok=False, detail="held 3 of 2")
    run.book["after"]["ok"] = False


def a_record_cut_off(run: Run) -> None:
    """One process died before it had written everything."""
    run.cut_off.append("history-x.jsonl")


FAULTS: list[tuple[Callable[[Run], None], dict[str, int]]] = [
    (one_unit_too_many, {"oversold": 1}),
    (buyers_told_of_too_many, {"oversold": 1, "told wrongly": 1}),
    (free_units_below_zero, {"oversold": 1}),
    (a_key_with_two_requests, {"sold twice": 1}),
    (a_request_with_two_keys, {"sold twice": 1}),
    (more_orders_than_units, {"sold twice": 1}),
    (never_decided, {"lost": 1}),
    (forgotten, {"lost": 1, "unforeseen answer": 1}),
    (stranded, {"lost": 1}),
    (a_decision_not_in_the_books, {"lost": 1}),
    (a_decision_nobody_asked_for, {"from nowhere": 1}),
    (shown_to_a_stranger, {"from nowhere": 1}),
    (overtaken, {"out of order": 1}),
    (the_same_place_twice, {"out of order": 1}),
    (a_hold_taken_back, {"told wrongly": 1}),
    (a_place_that_changes, {"told wrongly": 1}),
    (new_twice, {"told wrongly": 1}),
    (refused_after_admission, {"told wrongly": 1}),
    (a_unit_left, {"undersold": 1}),
    (over_the_limit, {"limit broken": 1}),
    (a_server_error, {"unforeseen answer": 1}),
    (never_answered, {"unforeseen answer": 1}),
    (a_strange_answer_at_the_door, {"unforeseen answer": 1}),
    (nobody_sent_away, {"vacuous": 1}),
    (no_double_clicks, {"vacuous": 1}),
    (no_audit, {"audit missing": 1}),
    (an_audit_that_leaves_out_a_count, {"audit missing": 1}),
    (an_invariant_broken, {"audit broken": 1}),
    (a_record_cut_off, {"record cut off": 1}),
]


@pytest.mark.parametrize(("put_in", "expected"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_each_fault_is_found_and_named(put_in: Callable[[Run], None], expected: dict[str, int]) -> None:
    run = Run()
    put_in(run)
    found = run.faults()
    assert expected.items() <= found.items()
    # A fault may show in a second way, but never as a flood of unrelated complaints.
    assert len(found) <= len(expected) + 1
    assert not run.judge().ok


def test_clicks_on_their_way_at_the_same_time_may_stand_in_any_order() -> None:
    run = Run()
    first, second = run.operations[2], run.operations[3]
    second.began_ns = first.began_ns
    overtaken(run)
    assert run.faults() == {}


def test_times_of_two_machines_are_never_compared() -> None:
    run = Run()
    overtaken(run)
    for operation in run.operations:
        if operation.request_id == "r3":
            operation.clock = "there"
    assert run.faults() == {}


def test_a_refusal_before_admission_does_not_date_the_wish() -> None:
    run = Run()
    early = replace(run.operations[3], began_ns=1, ended_ns=2, outcome=FAIL, status=409, code="sold_out")
    run.operations.insert(0, replace(early, request_id="", seq=0, state=""))
    overtaken(run)
    assert run.faults() == {"out of order": 1}


def test_an_unknown_answer_maps_to_none_or_one() -> None:
    shed = {"outcome": UNKNOWN, "status": 503, "code": "unavailable"}
    for decided, faults in ((3, {}), (4, {}), (5, {"from nowhere": 1})):
        run = Run()
        run.add("ask", "b5", click="first", **shed)
        run.add("ask", "b5", click="retry", outcome=FAIL, status=410, code="sale_closed")
        run.after["decided"] = decided
        assert run.faults() == faults


def test_units_that_came_back_are_no_undersell() -> None:
    run = Run()
    run.of("r2", "recheck")[0].state = "expired"
    run.after.update(available=1, held=1, units_held=1)
    assert run.faults() == {}


def test_the_waitlisted_have_their_answer() -> None:
    run = Run()
    for operation in run.of("r3", "look") + run.of("r3", "recheck"):
        operation.state = "waitlisted"
    run.after.update(queued=1, waitlisted=1)
    assert run.faults() == {}
    assert run.judge().sales[0].results == {"held": 2, "waitlisted": 1, "sold_out": 1}


def test_an_empty_run_is_vacuous() -> None:
    verdict = judge(History([], [], files=1), {SALE: Run().book})
    assert "vacuous" in {check.name for check in verdict.checks if check.count}


def test_waits_are_those_of_the_clients() -> None:
    verdict = Run().judge()
    assert (verdict.admission.count, verdict.admission.max_ms) == (4, 1.0)
    assert (verdict.refusal.count, verdict.refusal.p50_ms) == (2, 1.0)
    assert verdict.decision.count == 3
    assert verdict.decision.max_ms == pytest.approx(15.0)


def test_percentiles_are_nearest_rank() -> None:
    wait = latency.wait_of(n * MS for n in range(1, 101))
    assert (wait.count, wait.p50_ms, wait.p99_ms, wait.max_ms) == (100, 50.0, 99.0, 100.0)


def test_the_table_shows_rows_totals_marks_and_a_sentence() -> None:
    clean = Run()
    text = render(json.loads(as_json(clean.judge())))
    assert "thing" in text
    assert "total" in text
    assert "✗" not in text
    assert "2 of 2 units" in text
    one_unit_too_many(clean)
    broken = render(json.loads(as_json(clean.judge())), colour=True)
    assert "The books do not balance: oversold" in broken
    assert "2 units, 3 given by the books" in broken


def test_a_kept_record_is_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    for fault, code in ((None, 0), (overtaken, 1)):
        if fault:
            fault(run)
        with HistoryWriter(tmp_path, process_name="one") as writer:
            for operation in deepcopy(run.operations):
                writer.add(operation)
        (tmp_path / AUDIT_FILE).write_text(json.dumps({SALE: run.book}))
        assert main([str(tmp_path)]) == code
        assert json.loads((tmp_path / VERDICT_FILE).read_text())["ok"] is (code == 0)
    assert "overtook" in capsys.readouterr().out
    assert main([]) == 2
