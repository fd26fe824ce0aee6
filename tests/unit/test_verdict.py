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
    """A hand-made run of three units. b1, b5 and b7 buy them; b5 and b7 waited for those that b3 gave up and b2 let
    lapse, to pay too late; b6 leaves the line, b8 is told in line that nothing is left, b4 at the door.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.now_ns = 0
        self.book: dict[str, Any] = {"sku": "thing", "per_buyer_limit": 1}
        self.book["before"] = {"ok": True, "invariants": [], "counts": _counts(available=3, sold=0, decided=0)}
        self.book["after"] = {
            "ok": True,
            "invariants": [{"id": "I1", "name": "nothing is oversold", "ok": True, "detail": ""}],
            "counts": _counts(available=0, sold=3, decided=7),
        }
        self.cut_off: list[str] = []
        self._play()

    def _play(self) -> None:
        for number in (1, 2, 3, 5, 6, 7, 8):
            self.tell(number, "ask", "queued", status=202, click="first")
            if number == 1:
                self.tell(1, "ask", "queued", click="double")
        for click in ("first", "again"):
            self.add("ask", "b4", outcome=FAIL, status=409, code="sold_out", click=click)
        for number, state in ((1, "held"), (2, "held"), (3, "held"), *((n, "waitlisted") for n in (5, 6, 7, 8))):
            self.tell(number, "look", state)
        self.tell(1, "pay", "paid")
        self.tell(2, "begin", "held")
        self.tell(3, "cancel", "cancelled")
        self.tell(5, "look", "held")
        self.tell(5, "pay", "paid")
        self.tell(6, "cancel", "cancelled")
        self.tell(2, "look", "expired")
        self.tell(7, "look", "held")
        self.tell(7, "pay", "paid")
        self.add("page", "b2", outcome=OK, status=200, request_id="r2")
        self.add("choose", "b2", outcome=OK, status=303, request_id="r2")
        self.tell(2, "look", "refunded")
        self.tell(8, "look", "sold_out")
        ends = {1: "paid", 2: "refunded", 3: "cancelled", 5: "paid", 6: "cancelled", 7: "paid", 8: "sold_out"}
        for number, state in ends.items():
            self.tell(number, "recheck", state)

    def tell(self, number: int, kind: str, state: str, *, status: int = 200, click: str = "") -> None:
        """Append a call of buyer b<number> about r<number> that is answered with `state`."""
        name, seq = f"r{number}", 10 + number
        self.add(kind, f"b{number}", outcome=OK, status=status, request_id=name, seq=seq, state=state, click=click)

    def add(self, kind: str, buyer: str, **values: Any) -> Operation:
        """Append an operation that takes a millisecond and begins after the one before."""
        self.now_ns += 2 * MS
        key = f"key-{buyer}" if kind == "ask" else ""
        times = {"began_ns": self.now_ns, "ended_ns": self.now_ns + MS, "clock": "here"}
        operation = Operation(kind=kind, buyer=buyer, sale=SALE, quantity=1, **({"key": key} | times | values))
        self.operations.append(operation)
        return operation

    def of(self, request_id: str, *kinds: str) -> list[Operation]:
        """Return the operations of these kinds about one request."""
        return [o for o in self.operations if o.request_id == request_id and o.kind in kinds]

    def rewrite(self, request_id: str, *, was: str, now: str) -> None:
        """Let every answer about a request that said `was` say `now`."""
        for operation in self.of(request_id, "look", "recheck", "pay", "cancel"):
            if operation.state == was:
                operation.state = now

    def forget(self, request_id: str, *, state: str) -> None:
        """Let nobody ever have been told this state of a request, but for the questions at rest."""
        self.operations = [
            o for o in self.operations if o.request_id != request_id or o.state != state or o.kind == "recheck"
        ]

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

    def details(self, name: str) -> list[str]:
        """Return what a check has to say."""
        return next(check.details for check in self.judge().checks if check.name == name)


def _counts(*, available: int, sold: int, decided: int) -> dict[str, int]:
    counts = {"total": 3, "available": available, "held": 0, "sold": sold, "queued": 0, "in_flight": 0}
    return counts | {"decided": decided, "waiting": 0, "waitlisted": 0, "units_held": 0, "last_seq": 18}


def test_a_clean_run_passes() -> None:
    run = Run()
    verdict = run.judge()
    (row,) = verdict.sales
    assert verdict.ok, run.faults()
    assert (row.asked, row.repeated, row.wishes, row.admitted) == (10, 2, 8, 7)
    assert (row.units_sold, row.units_free, row.moved_up, row.paid_late) == (3, 0, 2, 1)
    assert row.results == {"paid": 3, "refunded": 1, "cancelled": 2, "sold_out": 2}


def test_a_late_payment_may_get_its_unit_again() -> None:
    run = Run()
    run.rewrite("r2", was="refunded", now="paid")
    for state in ("held", "paid"):
        run.rewrite("r7", was=state, now="sold_out")
    run.operations = [o for o in run.operations if not (o.request_id == "r7" and o.kind == "pay")]
    # r7 left before, so it was not passed over.
    run.rewrite("r7", was="sold_out", now="cancelled")
    assert run.faults() == {}


# One fault each: what is done to the clean run, and the checks that must see it.


def one_unit_too_many(run: Run) -> None:
    """The books give four of three units."""
    run.after.update(held=1, units_held=1)


def buyers_told_of_too_many(run: Run) -> None:
    """Four buyers were told "paid", the books say three: oversold, as far as buyers can see."""
    run.rewrite("r8", was="sold_out", now="paid")


def free_units_below_zero(run: Run) -> None:
    """More was taken than there was."""
    run.after.update(available=-1)


def a_key_with_two_requests(run: Run) -> None:
    """The double click bought a second time."""
    run.operations[1].request_id = "r9"
    run.operations[1].seq = 19
    run.add("recheck", "b1", outcome=OK, status=200, request_id="r9", seq=19, state="sold_out")
    run.after["decided"] = 8


def a_request_with_two_keys(run: Run) -> None:
    """Two buyers share one request."""
    ask = run.of("r8", "ask")[0]
    ask.request_id, ask.seq = "r1", 11


def more_orders_than_units(run: Run) -> None:
    """Orders hold a unit that the stock row never gave."""
    run.after.update(units_held=1)


def never_decided(run: Run) -> None:
    """An admitted request is still in line at rest, and was never told anything else."""
    for state in ("waitlisted", "sold_out"):
        run.rewrite("r8", was=state, now="queued")
    run.after["decided"] = 6


def waits_for_ever(run: Run) -> None:
    """An admitted request still waits at rest, though no unit can come back."""
    run.rewrite("r8", was="sold_out", now="waitlisted")
    run.after["decided"] = 6


def forgotten(run: Run) -> None:
    """An admitted request is answered with 404 at rest, though it had been decided."""
    recheck = run.of("r8", "recheck")[0]
    recheck.outcome, recheck.status, recheck.code, recheck.state = FAIL, 404, "request_not_found", ""


def stranded(run: Run) -> None:
    """The shop itself still has somebody in flight."""
    run.after["in_flight"] = 1


def waitlisted_at_rest(run: Run) -> None:
    """The shop itself still has somebody on the waitlist."""
    run.after.update(waiting=1, waitlisted=1)


def a_decision_not_in_the_books(run: Run) -> None:
    """A buyer was told of a decision that no order knows."""
    run.after["decided"] = 6


def a_decision_nobody_asked_for(run: Run) -> None:
    """The books have one order more than buyers can account for."""
    run.after["decided"] = 8


def shown_to_a_stranger(run: Run) -> None:
    """Another buyer can see the request."""
    run.add("look", "b4", outcome=OK, status=200, request_id="r1", seq=11, state="paid")


def overtaken(run: Run) -> None:
    """b3 asked after b2 was answered and stands before b2."""
    for operation in run.operations:
        if operation.request_id in ("r2", "r3") and operation.seq:
            operation.seq = {12: 13, 13: 12}[operation.seq]


def the_same_place_twice(run: Run) -> None:
    """Two requests stand at the same place in line."""
    for operation in run.of("r3", "ask", "look", "cancel", "recheck"):
        operation.seq = 12


def passed_over(run: Run) -> None:
    """A unit that came back went to r7, which stands behind r8; r8 was told that nothing is left."""
    for operation in run.of("r7", "ask", "look", "pay", "recheck"):
        operation.seq = 19
    run.of("r8", "ask")[0].began_ns = run.of("r7", "ask")[0].began_ns


def a_hold_taken_back(run: Run) -> None:
    """Held, then sold out."""
    run.rewrite("r7", was="paid", now="sold_out")


def back_from_the_waitlist(run: Run) -> None:
    """Told to wait for a unit that may come back, then told to be in line as if nothing were."""
    run.rewrite("r7", was="held", now="queued")


def a_sale_taken_back(run: Run) -> None:
    """Paid in time, then refunded: nobody gave anything back."""
    run.of("r1", "recheck")[0].state = "refunded"


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
    """A unit came back, r7 and r8 were told that nothing is left, and it stayed free."""
    run.operations = [o for o in run.operations if not (o.request_id == "r7" and o.state == "held")]
    run.rewrite("r7", was="paid", now="sold_out")
    run.after.update(available=1, sold=2)


def still_held(run: Run) -> None:
    """A hold that nobody paid never ended."""
    run.rewrite("r7", was="paid", now="held")
    run.after.update(held=1, units_held=1, sold=2)


def a_unit_gone(run: Run) -> None:
    """One unit is neither sold nor free."""
    run.rewrite("r7", was="paid", now="expired")
    run.after.update(sold=2)


def sold_to_nobody(run: Run) -> None:
    """The books sold a unit whose buyer was told that the hold had lapsed."""
    run.rewrite("r7", was="paid", now="expired")


def charged_and_nothing_given(run: Run) -> None:
    """Paid too late at the provider: neither the unit nor the money came."""
    run.rewrite("r2", was="refunded", now="expired")


def over_the_limit(run: Run) -> None:
    """b1 has two units where one is allowed, under two keys."""
    for operation in run.operations:
        if operation.buyer == "b5":
            operation.buyer = "b1"


def a_server_error(run: Run) -> None:
    """An answer that no contract foresees, though the retry was served."""
    run.operations.insert(0, replace(run.operations[0], outcome=UNKNOWN, status=500, request_id="", seq=0, state=""))


def a_payment_refused_strangely(run: Run) -> None:
    """A payment was answered with something that no contract foresees."""
    run.add("pay", "b1", outcome=FAIL, status=400, code="invalid_request", request_id="r1")


def never_answered(run: Run) -> None:
    """One wish got no definite answer at all."""
    run.add("ask", "b9", outcome=UNKNOWN, status=0, click="first")


def a_strange_answer_at_the_door(run: Run) -> None:
    """Joining, which belongs to no sale, was answered with something unforeseen."""
    run.operations.append(Operation(kind="join", began_ns=1, ended_ns=2, outcome=UNKNOWN, status=502))


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
    (one_unit_too_many, {"oversold": 1, "unaccounted": 1}),
    (buyers_told_of_too_many, {"oversold": 1, "told wrongly": 2}),
    (free_units_below_zero, {"oversold": 1, "unaccounted": 1}),
    (a_key_with_two_requests, {"sold twice": 1}),
    (a_request_with_two_keys, {"sold twice": 1}),
    (more_orders_than_units, {"sold twice": 1}),
    (never_decided, {"lost": 1}),
    (waits_for_ever, {"lost": 1}),
    (forgotten, {"lost": 1, "unforeseen answer": 1}),
    (stranded, {"lost": 1}),
    (waitlisted_at_rest, {"lost": 1}),
    (a_decision_not_in_the_books, {"lost": 1}),
    (a_decision_nobody_asked_for, {"from nowhere": 1}),
    (shown_to_a_stranger, {"from nowhere": 1}),
    (overtaken, {"out of order": 1}),
    (the_same_place_twice, {"out of order": 1}),
    (passed_over, {"out of order": 1}),
    (a_hold_taken_back, {"told wrongly": 1, "unaccounted": 1}),
    (back_from_the_waitlist, {"told wrongly": 1}),
    (a_sale_taken_back, {"told wrongly": 1, "unaccounted": 1}),
    (a_place_that_changes, {"told wrongly": 1}),
    (new_twice, {"told wrongly": 1}),
    (refused_after_admission, {"told wrongly": 1}),
    (a_unit_left, {"undersold": 1}),
    (still_held, {"unaccounted": 1}),
    (a_unit_gone, {"unaccounted": 1}),
    (sold_to_nobody, {"unaccounted": 1}),
    (charged_and_nothing_given, {"charged for nothing": 1}),
    (over_the_limit, {"limit broken": 1}),
    (a_server_error, {"unforeseen answer": 1}),
    (a_payment_refused_strangely, {"unforeseen answer": 1}),
    (never_answered, {"unforeseen answer": 1}),
    (a_strange_answer_at_the_door, {"unforeseen answer": 1}),
    (no_double_clicks, {"vacuous": 1}),
    (no_audit, {"audit missing": 1}),
    (an_audit_that_leaves_out_a_count, {"audit missing": 1, "told wrongly": 6}),
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


def nobody_sent_away(run: Run) -> None:
    """The sale never ran out: b4 and b8 left with something else."""
    run.operations = [operation for operation in run.operations if operation.buyer != "b4"]
    run.tell(1, "ask", "paid", click="again")
    run.rewrite("r8", was="sold_out", now="cancelled")


def nobody_let_a_hold_lapse(run: Run) -> None:
    """Nobody ever saw a hold that was over."""
    run.forget("r2", state="expired")


def nobody_cancelled_a_hold(run: Run) -> None:
    """Who cancelled had waited in line until then."""
    run.forget("r3", state="held")


def nobody_paid_late(run: Run) -> None:
    """Nobody used the provider's page."""
    run.operations = [operation for operation in run.operations if operation.kind != "choose"]


def nobody_left(run: Run) -> None:
    """Everybody stayed in line to the end."""
    run.rewrite("r6", was="cancelled", now="sold_out")
    run.operations = [o for o in run.operations if not (o.request_id == "r6" and o.kind == "cancel")]
    for operation in run.of("r6", "ask", "look", "recheck"):
        operation.seq = 20


def nobody_moved_up(run: Run) -> None:
    """Who got a unit was never told to wait for one."""
    for name in ("r5", "r7"):
        run.forget(name, state="waitlisted")


def nobody_bought(run: Run) -> None:
    """Every hold lapsed."""
    for name in ("r1", "r5", "r7"):
        run.rewrite(name, was="paid", now="expired")
    run.after.update(available=3, sold=0)


def nobody_asked(run: Run) -> None:
    """Nobody came."""
    run.operations.clear()
    run.after["decided"] = 0


HOLLOW: list[tuple[Callable[[Run], None], str]] = [
    (nobody_sent_away, "nobody was told it was sold out"),
    (nobody_let_a_hold_lapse, "no hold lapsed"),
    (nobody_cancelled_a_hold, "nobody gave up a hold"),
    (nobody_paid_late, "nobody paid too late"),
    (nobody_left, "nobody left the line"),
    (nobody_moved_up, "nobody moved up from the waitlist"),
    (nobody_bought, "nobody paid"),
    (nobody_asked, "nobody was admitted"),
]


@pytest.mark.parametrize(("put_in", "said"), HOLLOW, ids=[fault.__name__ for fault, _ in HOLLOW])
def test_a_run_that_left_something_out_proves_nothing(put_in: Callable[[Run], None], said: str) -> None:
    run = Run()
    put_in(run)
    assert f"thing: {said}" in run.details("vacuous")
    assert not run.judge().ok


def test_clicks_on_their_way_at_the_same_time_may_stand_in_any_order() -> None:
    run = Run()
    (first,), (second,) = run.of("r2", "ask"), run.of("r3", "ask")
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
    early = replace(run.of("r3", "ask")[0], began_ns=1, ended_ns=2, outcome=FAIL, status=409, code="sold_out")
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


def test_a_unit_sold_to_somebody_who_never_got_an_answer_is_accounted_for() -> None:
    run = Run()
    sold_to_nobody(run)
    assert run.faults() == {"unaccounted": 1}
    run.add("ask", "b9", click="first", outcome=UNKNOWN, status=503, code="unavailable")
    run.add("ask", "b9", click="retry", outcome=UNKNOWN, status=0)
    assert "unaccounted" not in run.faults()


def test_an_empty_run_is_vacuous() -> None:
    verdict = judge(History([], [], files=1), {SALE: Run().book})
    assert "vacuous" in {check.name for check in verdict.checks if check.count}


def test_waits_are_those_of_the_clients() -> None:
    verdict = Run().judge()
    assert (verdict.admission.count, verdict.admission.max_ms) == (8, 1.0)
    assert (verdict.refusal.count, verdict.refusal.p50_ms) == (2, 1.0)
    assert (verdict.payment.count, verdict.payment.p99_ms) == (3, 1.0)
    # Ten asks, then seven looks in the same order: b1 saw the answer after ten other calls, each of 2 ms.
    assert (verdict.decision.count, verdict.decision.max_ms) == (7, 21.0)


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
