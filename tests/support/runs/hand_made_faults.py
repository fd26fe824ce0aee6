"""What can go wrong in a run, one thing each: every function puts one fault into a hand-made run. Never puts in two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from loadtest.record.expectations import RunFacts
from loadtest.record.history import FAIL, OK, UNKNOWN, Operation
from tests.support.runs.hand_made_runs import SECOND, Run

UNANSWERED = {"outcome": UNKNOWN, "status": 0}
SLOWER = {"outcome": FAIL, "status": 429, "code": "rate_limited"}


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
    run.operations[1].seq = 15
    run.add("recheck", "b1", outcome=OK, status=200, request_id="r9", seq=15, state="expired")
    run.after["decided"] = 8


def a_request_with_two_keys(run: Run) -> None:
    """Two buyers share one request."""
    ask = run.of("r8", "ask")[0]
    ask.request_id, ask.seq = "r1", 10
    run.after["decided"] = 6


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
    run.add("look", "b4", outcome=OK, status=200, request_id="r1", seq=10, state="paid")


def overtaken(run: Run) -> None:
    """b3 asked after b2 was answered and stands before b2."""
    for operation in run.operations:
        if operation.request_id in ("r2", "r3") and operation.seq:
            operation.seq = {20: 30, 30: 20}[operation.seq]


def the_same_place_twice(run: Run) -> None:
    """Two requests stand at the same place in line."""
    for operation in run.of("r3", "ask", "look", "cancel", "recheck"):
        operation.seq = 20


def the_same_place_for_two_at_once(run: Run) -> None:
    """The same of two whose asks overlapped, so that neither was surely first."""
    run.of("r3", "ask")[0].began_ns = run.of("r2", "ask")[0].began_ns
    the_same_place_twice(run)


def passed_over(run: Run) -> None:
    """A unit that came back went to r7, which stands behind r8; r8 was told that nothing is left."""
    for operation in run.of("r7", "ask", "look", "pay", "recheck"):
        operation.seq = 90
    run.of("r8", "ask")[0].began_ns = run.of("r7", "ask")[0].began_ns


def passed_over_and_left(run: Run) -> None:
    """A unit that came back went to r7, which stands behind r6; r6 was told to wait on, and left the line then."""
    run.operations = [o for o in run.operations if o.request_id != "r6" or o.state != "cancelled"]
    run.tell(6, "look", "waitlisted")
    run.tell(6, "cancel", "cancelled")


def stands_by_for_ever(run: Run) -> None:
    """b8 stood by, and at rest still does."""
    stand_by(run)
    run.rewrite("r8", was="sold_out", now="standby")
    run.after["decided"] = 6


def passed_on_standby(run: Run) -> None:
    """A fourth unit came back, and went to r9, which stands behind r8 on standby."""
    stand_by(run)
    run.tell(9, "ask", "standby", status=202, click="standby")
    run.tell(9, "look", "held")
    stand_by_to_the_end(run)
    run.tell(9, "cancel", "cancelled")
    run.after.update(total=4, available=1)


def let_in_before_standby(run: Run) -> None:
    """b9 was let into the line, and left it, while b8 stood by."""
    stand_by(run)
    run.tell(9, "ask", "queued", status=202, click="first")
    stand_by_to_the_end(run)
    run.tell(9, "cancel", "cancelled")


def stand_by(run: Run) -> None:
    """Let b8 have stood by instead of having waited in line; nobody has come after them yet."""
    for operation in run.of("r8", "ask", "look"):
        operation.state = {"queued": "standby", "waitlisted": "standby"}.get(operation.state, operation.state)


def stand_by_to_the_end(run: Run) -> None:
    """Let b8 stand by until now, and then leave; r9 is decided as well."""
    run.operations = [o for o in run.operations if o.request_id != "r8" or o.state != "sold_out"]
    run.tell(8, "look", "standby")
    run.tell(8, "cancel", "cancelled")
    run.after["decided"] = 8


def a_hold_taken_back(run: Run) -> None:
    """Held, then sold out."""
    run.rewrite("r7", was="paid", now="sold_out")


def back_from_the_waitlist(run: Run) -> None:
    """Told to wait for a unit that may come back, then told to be in line as if nothing were."""
    run.rewrite("r7", was="held", now="queued")


def a_sale_taken_back(run: Run) -> None:
    """Paid in time, then refunded: nobody gave anything back."""
    run.of("r1", "recheck")[0].state = "refunded"


def a_hold_told_again(run: Run) -> None:
    """Paid; a look that was under way then may say "held" still, but not the one after it."""
    recheck = run.of("r1", "recheck")[0]
    run.pause(run.of("r1", "pay")[0], seconds=2)
    paid_at_ns = run.of("r1", "pay")[0].ended_ns
    run.say(1, "held", at_ns=paid_at_ns + SECOND)
    run.operations[-1].began_ns = run.of("r1", "pay")[0].began_ns
    run.say(1, "held", at_ns=paid_at_ns + SECOND + 1)
    assert recheck.state == "paid"


def closed_after_admission(run: Run) -> None:
    """The repeat of an admitted request is told that the sale is over."""
    run.add("ask", "b1", outcome=FAIL, status=410, code="sale_closed", click="again")


def a_place_that_changes(run: Run) -> None:
    """A request is told two places in line."""
    run.of("r2", "look")[0].seq = 99


def new_twice(run: Run) -> None:
    """Both clicks of a double click are called new."""
    run.operations[1].status = 202
    run.tell(1, "ask", "paid", click="again")


def refused_after_admission(run: Run) -> None:
    """The repeat of an admitted request is refused."""
    run.add("ask", "b1", outcome=FAIL, status=409, code="limit_reached", click="again")


def a_unit_left(run: Run) -> None:
    """A unit came back, r7 and some time after it r8 were told that nothing is left, and it stayed free."""
    run.pause(run.of("r2", "look")[-1], seconds=2)
    run.operations = [o for o in run.operations if not (o.request_id == "r7" and o.state == "held")]
    run.rewrite("r7", was="paid", now="sold_out")
    run.after.update(available=1, sold=2)


def sent_away_too_early(run: Run) -> None:
    """b9 was told at the door that nothing is left before anybody had asked; all was sold in the end."""
    told = run.add("ask", "b9", outcome=FAIL, status=409, code="sold_out", click="first")
    told.began_ns, told.ended_ns = 1, 2


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


def over_the_limit_of_a_network(run: Run) -> None:
    """b1, b5 and b7 come from one network, which may be let in for two units."""
    run.book["per_network_limit"] = 2
    for operation in run.operations:
        if operation.kind == "ask":
            operation.network = "192.0.2" if operation.buyer in ("b1", "b5", "b7") else f"of {operation.buyer}"


def a_server_error(run: Run) -> None:
    """An answer that no contract foresees, though the retry was served."""
    run.operations.insert(0, replace(run.operations[0], outcome=UNKNOWN, status=500, request_id="", seq=0, state=""))


def a_payment_refused_strangely(run: Run) -> None:
    """A payment was answered with something that no contract foresees."""
    run.add("pay", "b1", outcome=FAIL, status=400, code="invalid_request", request_id="r1")


def never_answered(run: Run) -> None:
    """One wish got no definite answer at all."""
    run.add("ask", "b9", outcome=UNKNOWN, status=0, click="first")


def always_told_to_come_again(run: Run) -> None:
    """One wish was only ever told to come again."""
    for click in ("first", *["retry"] * 7):
        run.add("ask", "b9", outcome=FAIL, status=429, code="rate_limited", click=click)


def never_given_a_token(run: Run) -> None:
    """Two buyers came and could not ask for anything: they were not answered, or told to come again."""
    for number, told in enumerate((UNANSWERED, SLOWER)):
        for _ in range(8):
            run.add("join", "", key=f"visit-{number}", **told).sale = ""


def a_strange_answer_at_the_door(run: Run) -> None:
    """Joining, which belongs to no sale, was answered with something unforeseen."""
    run.operations.append(Operation(kind="join", began_ns=1, ended_ns=2, outcome=UNKNOWN, status=500))


def a_log_that_does_not_hold(run: Run) -> None:
    """The independent verifier found the public log broken."""
    run.logs = ["The public log of drop (9 leaves) does not hold: order: leaf 8"]


def a_log_that_is_missing(run: Run) -> None:
    """The shop publishes keys for logs, and no log of this sale."""
    run.logs = ["drop has no public log, and the shop publishes keys for logs: does its notary run?"]


def a_log_that_nobody_read(run: Run) -> None:
    """The run was to look at the log of its sale, and nothing is said of it."""
    run.facts, run.logs = replace(run.facts, logs=1), []


def no_audit(run: Run) -> None:
    """The shop's books were not opened."""
    run.book["after"] = None


def an_audit_that_leaves_out_a_count(run: Run) -> None:
    """An audit without a count cannot clear anybody."""
    del run.after["sold"]


def a_sale_without_books(run: Run) -> None:
    """A sale is on record of which no books were read, so that nobody could judge it."""
    run.add("ask", "b1", outcome=OK, status=202, request_id="r99", seq=99).sale = "another"


def an_invariant_broken(run: Run) -> None:
    """The shop's own audit found something that buyers cannot know."""
    break_invariant(run, "I16")


def a_record_cut_off(run: Run) -> None:
    """One process died before it had written everything."""
    run.cut_off.append("history-x.jsonl")


def a_record_missing(run: Run) -> None:
    """Two processes took part, one record is here."""
    run.facts = RunFacts(files=2)


def sold_beyond_the_stock(run: Run) -> None:
    """A fourth unit was sold, and the books and the buyers agree that it was."""
    run.rewrite("r8", was="sold_out", now="paid")
    run.after.update(available=-1, sold=4)


def held_by_four_at_once(run: Run) -> None:
    """For some seconds four buyers are told that they hold one of the three units; at rest nothing shows of it."""
    looked = run.of("r8", "look")[0]
    run.pause(looked, seconds=6)
    for number, after_seconds in product((1, 2, 3, 8), (1, 5)):
        run.say(number, "held", at_ns=looked.ended_ns + after_seconds * SECOND + number)
    run.rewrite("r8", was="sold_out", now="expired")


def two_holds_at_once(run: Run) -> None:
    """b2 holds two units for some seconds where one is allowed; both lapse."""
    looked = run.of("r8", "look")[0]
    run.pause(looked, seconds=6)
    for number, after_seconds in product((2, 3), (1, 5)):
        run.say(number, "held", at_ns=looked.ended_ns + after_seconds * SECOND + number)
    for operation in run.operations:
        if operation.buyer == "b3":
            operation.buyer = "b2"


def given_up_and_lapsed(run: Run) -> None:
    """A hold that was given up lapses as well."""
    run.tell(3, "recheck", "expired")


def paid_and_lapsed(run: Run) -> None:
    """A hold that was paid is told to have lapsed, and then to be paid."""
    run.tell(1, "look", "expired")
    run.tell(1, "recheck", "paid")


def a_generator_that_said_nothing(run: Run) -> None:
    """One process of the load generator did not write down how busy it was."""
    run.load.missing.append("another")


def break_invariant(run: Run, number: str) -> None:
    """Let the shop's own audit find something."""
    run.book["after"]["ok"] = False
    run.book["after"]["invariants"] = [{"id": number, "name": "a rule", "ok": False, "detail": "r1"}]


# Two names only where the fault is two: what the shop did, and what it said of it.
FAULTS: list[tuple[Callable[[Run], None], dict[str, int]]] = [
    (sold_beyond_the_stock, {"oversold": 1}),
    (held_by_four_at_once, {"oversold": 1}),
    (one_unit_too_many, {"oversold": 1, "unaccounted": 1}),
    (free_units_below_zero, {"oversold": 1, "unaccounted": 1}),
    (buyers_told_of_too_many, {"oversold": 1, "told wrongly": 2}),
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
    (the_same_place_for_two_at_once, {"out of order": 1}),
    (passed_over, {"out of order": 1}),
    (passed_over_and_left, {"out of order": 1}),
    (stands_by_for_ever, {"lost": 1}),
    (passed_on_standby, {"out of order": 1}),
    (let_in_before_standby, {"out of order": 1}),
    (over_the_limit, {"limit broken": 1}),
    (two_holds_at_once, {"limit broken": 1}),
    (over_the_limit_of_a_network, {"network limit broken": 1}),
    (given_up_and_lapsed, {"hold ended twice": 1}),
    (paid_and_lapsed, {"hold ended twice": 1}),
    (a_hold_taken_back, {"told wrongly": 1, "unaccounted": 1}),
    (back_from_the_waitlist, {"told wrongly": 1}),
    (a_sale_taken_back, {"told wrongly": 1, "unaccounted": 1}),
    (a_hold_told_again, {"told wrongly": 1}),
    (closed_after_admission, {"told wrongly": 1}),
    (a_place_that_changes, {"told wrongly": 1}),
    (new_twice, {"told wrongly": 1}),
    (refused_after_admission, {"told wrongly": 1}),
    (a_unit_left, {"undersold": 1}),
    (sent_away_too_early, {"undersold": 1}),
    (still_held, {"unaccounted": 1}),
    (a_unit_gone, {"unaccounted": 1}),
    (sold_to_nobody, {"unaccounted": 1}),
    (charged_and_nothing_given, {"charged for nothing": 1}),
    (a_server_error, {"unforeseen answer": 1}),
    (a_payment_refused_strangely, {"unforeseen answer": 1}),
    (never_answered, {"unforeseen answer": 1}),
    (always_told_to_come_again, {"unforeseen answer": 1}),
    (never_given_a_token, {"unforeseen answer": 2}),
    (a_strange_answer_at_the_door, {"unforeseen answer": 1}),
    (a_log_that_does_not_hold, {"public log": 1}),
    (a_log_that_is_missing, {"public log": 1}),
    (a_log_that_nobody_read, {"public log": 1}),
    (no_audit, {"audit missing": 1}),
    (an_audit_that_leaves_out_a_count, {"audit missing": 1}),
    (a_sale_without_books, {"audit missing": 1}),
    (an_invariant_broken, {"audit broken": 1}),
    (a_record_cut_off, {"record cut off": 1}),
    (a_record_missing, {"record cut off": 1}),
    (a_generator_that_said_nothing, {"load generator": 1}),
]
