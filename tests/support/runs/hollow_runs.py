"""What a run may leave out, so that it proves nothing: every function takes one thing out of a hand-made run.
Never puts a fault in.
"""

from __future__ import annotations

from collections.abc import Callable

from loadtest.record.expectations import FULL_SET, OF_A_SALE, OF_CLICKS, OF_SHORT_LINES, OF_TROUBLE, RunFacts
from loadtest.record.history import FAIL
from tests.support.runs.hand_made_runs import Run


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
    """Everybody stayed in line to the end: b6 did not come."""
    run.operations = [operation for operation in run.operations if operation.buyer != "b6"]
    run.after["decided"] = 6


def nobody_moved_up(run: Run) -> None:
    """Who got a unit was never told to wait for one."""
    for name in ("r5", "r7"):
        run.forget(name, state="waitlisted")


def nobody_bought(run: Run) -> None:
    """Every hold lapsed."""
    for name in ("r1", "r5", "r7"):
        run.rewrite(name, was="paid", now="expired")
    run.rewrite("r8", was="sold_out", now="cancelled")
    run.after.update(available=3, sold=0)


def nobody_asked(run: Run) -> None:
    """Nobody came."""
    run.operations.clear()
    run.after.update(decided=0, sold=0, available=3)


def no_double_clicks(run: Run) -> None:
    """No click was sent alongside another."""
    run.operations[1].click = "again"


def nobody_asked_again(run: Run) -> None:
    """Who had an answer was content with it."""
    run.operations = [operation for operation in run.operations if operation.click != "again"]


def no_repeat_met_a_place(run: Run) -> None:
    """Every click was the first of its wish to reach the shop, so that nothing was shown of a retry."""
    run.operations[1].outcome, run.operations[1].status, run.operations[1].code = FAIL, 429, "rate_limited"
    run.operations[1].request_id, run.operations[1].seq, run.operations[1].state = "", 0, ""


def every_call_was_answered(run: Run) -> None:
    """The run was to show what becomes of a call without an answer, and there was none."""
    run.facts = RunFacts(expects=FULL_SET | {"unanswered"})


def nobody_stood_by(run: Run) -> None:
    """The run was to show that standby is served, and nobody stood by."""
    run.facts = RunFacts(expects=FULL_SET | OF_SHORT_LINES.keys())


HOLLOW: list[tuple[Callable[[Run], None], str, int]] = [
    (nobody_asked, "nobody was admitted", 2 + len(OF_A_SALE) + len(OF_CLICKS)),
    (nobody_sent_away, OF_A_SALE["sold_out"], 1),
    (nobody_bought, OF_A_SALE["paid"], 1),
    (nobody_let_a_hold_lapse, OF_A_SALE["expired"], 1),
    (nobody_cancelled_a_hold, OF_A_SALE["cancelled"], 1),
    (nobody_paid_late, OF_A_SALE["paid_late"], 1),
    (nobody_left, OF_A_SALE["left"], 1),
    (nobody_moved_up, OF_A_SALE["moved_up"], 1),
    (no_double_clicks, OF_CLICKS["double"], 1),
    (nobody_asked_again, OF_CLICKS["again"], 1),
    (no_repeat_met_a_place, OF_CLICKS["retry"], 1),
    (every_call_was_answered, OF_TROUBLE["unanswered"], 1),
    (nobody_stood_by, OF_SHORT_LINES["stood_by"], 1),
]
