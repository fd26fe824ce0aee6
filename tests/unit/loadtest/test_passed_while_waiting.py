"""Who waits while somebody behind them gets units is found, whatever becomes of them; no clean doubt is a fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loadtest.record.history import OK, Operation
from tests.support.runs.hand_made_faults import passed_over_and_left
from tests.support.runs.hand_made_runs import Run


def looks(run: Run) -> tuple[Operation, Operation]:
    """Return the look that told r7 of its unit, and the last one that told r6, before it in line, to wait."""
    (served,) = (look for look in run.of("r7", "look") if look.state == "held")
    return served, run.of("r6", "look")[-1]


def asked_before_the_other_was_told(run: Run) -> None:
    served, waits = looks(run)
    waits.began_ns = served.began_ns


def asked_for_more(run: Run) -> None:
    """What is free need not be enough for r6."""
    run.book["per_buyer_limit"] = run.of("r6", "ask")[0].quantity = 2


def seen_by_another_clock(run: Run) -> None:
    looks(run)[1].clock = "there"


def showed_a_ticket(number: int) -> Callable[[Run], None]:
    """Let a buyer have shown the ticket at once; it brings nothing back."""

    def show(run: Run) -> None:
        (ask,) = run.of(f"r{number}", "ask")
        at = {"request_id": ask.request_id, "seq": ask.seq, "began_ns": ask.ended_ns + 1, "ended_ns": ask.ended_ns + 2}
        run.add("restore", ask.buyer, outcome=OK, status=200, state="queued", **at)

    return show


DOUBTS: dict[str, Callable[[Run], None]] = {
    "asked before the other was told": asked_before_the_other_was_told,
    "wants more units than the other got": asked_for_more,
    "a clock that says nothing of the other": seen_by_another_clock,
    "showed a ticket": showed_a_ticket(6),
    "the other showed a ticket": showed_a_ticket(7),
}


@pytest.mark.parametrize("put_in", DOUBTS.values(), ids=DOUBTS)
def test_who_waits_while_another_is_served_was_not_passed_over_where_there_is_a_doubt(
    put_in: Callable[[Run], None],
) -> None:
    run = Run()
    passed_over_and_left(run)
    assert run.details("out of order") == ["thing: request r6 still waited while r7 behind it got units"]  # the control
    put_in(run)
    assert run.faults() == {}


@pytest.mark.parametrize("state", ["queued", "waitlisted"])
def test_who_is_served_later_was_passed_over_all_the_same(state: str) -> None:
    """The control: r8, which stands behind r7, is told so as well."""
    for number, faults in ((5, {"out of order": 1}), (8, {})):
        run = Run()
        served, _ = looks(run)
        waits = run.of(f"r{number}", "look")[0]
        waits.state = state
        waits.began_ns = waits.ended_ns = served.ended_ns + 1
        for later in (run.of("r5", "look")[-1], *run.of("r5", "pay")):
            later.began_ns = later.ended_ns = served.ended_ns + 2
        assert run.faults() == faults
