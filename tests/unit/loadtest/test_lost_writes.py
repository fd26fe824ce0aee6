"""A Redis that loses writes makes a run red, as docs/load-testing.md says: no fault excuses an answer taken back."""

from __future__ import annotations

from loadtest.record.history import FAIL, OK
from tests.support.runs.hand_made_runs import Run


def test_who_is_told_to_be_in_line_after_a_hold_was_told_something_wrong_also_for_a_moment() -> None:
    run = Run()
    run.say(7, "queued", at_ns=run.of("r7", "look")[-1].ended_ns + 1)
    assert run.faults() == {"told wrongly": 1}


def test_a_place_that_is_not_known_until_its_ticket_is_shown_was_lost_for_so_long() -> None:
    """The control: a ticket that is shown before anything was lost is told where its buyer stands."""
    run = Run()
    (place,) = (ask for ask in run.operations if ask.buyer == "b8" and ask.kind == "ask")
    known = {"request_id": "r8", "seq": place.seq, "began_ns": place.ended_ns + 3, "ended_ns": place.ended_ns + 4}
    back = run.add("restore", "b8", outcome=OK, status=200, state="queued", **known)
    assert run.faults() == {}
    back.status = 202
    unknown = {"request_id": "r8", "began_ns": place.ended_ns + 1, "ended_ns": place.ended_ns + 2}
    run.add("look", "b8", outcome=FAIL, status=404, code="request_not_found", **unknown)
    assert run.faults() == {"lost": 1, "unforeseen answer": 1}


def test_who_clicks_again_without_a_ticket_after_the_loss_is_told_a_second_place() -> None:
    """The control: what is known is not new, and has its place."""
    run = Run()
    run.tell(8, "ask", "sold_out", click="again")
    assert run.faults() == {}
    again = run.add("ask", "b8", outcome=OK, status=202, request_id="r8", seq=95, state="queued", click="again")
    run.tell(8, "recheck", "sold_out")
    again.key = run.of("r8", "ask")[0].key
    assert set(run.faults()) == {"told wrongly"}


def test_who_shows_a_ticket_when_all_is_sold_was_passed_over_by_those_who_came_later() -> None:
    """The control: who was behind all who got units was not."""
    for number, faults in ((8, 0), (6, 1)):
        run = Run()
        run.rewrite(f"r{number}", was="cancelled", now="sold_out")
        run.tell(number, "restore", "sold_out")
        assert run.faults().get("out of order", 0) == faults
