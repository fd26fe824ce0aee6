"""Allocation gives units in the order of the line: never too many, never too few. Draws its cases with hypothesis.
Needs no server.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from inventory.allocation import Claim, Decision, allocate
from inventory.records import Record
from inventory.states import State

SALES = (1, 2)
BUYERS = ("ann", "bob", "eve")
OWNERS = st.tuples(st.sampled_from(SALES), st.sampled_from(BUYERS))
LIMITS = st.fixed_dictionaries({sale_id: st.integers(1, 6) for sale_id in SALES})
LIVE = st.dictionaries(OWNERS, st.integers(1, 6))


@st.composite
def batches(draw: st.DrawFn) -> list[Claim]:
    """Draw claims with distinct seqs, in any order."""
    seqs = draw(st.lists(st.integers(1, 10**16), unique=True, max_size=25))
    claims = []
    for seq in seqs:
        sale_id, buyer = draw(OWNERS)
        claims.append(claim(seq, sale_id=sale_id, buyer=buyer, quantity=draw(st.integers(1, 5))))
    return claims


def held_units(decisions: list[Decision]) -> int:
    return sum(each.claim.record.quantity for each in decisions if each.state is State.HELD)


def decide(
    claims: list[Claim],
    *,
    available: int,
    limits: dict[int, int],
    live_units: dict[tuple[int, str], int],
    held: int = 0,
    over: tuple[int, ...] = (),
    paused: tuple[int, ...] = (),
) -> list[Decision]:
    """Allocate with the limits of whole sales."""
    of_requests = {each.request_id: limits[each.record.sale_id] for each in claims}
    return allocate(
        claims, available=available, held=held, limits=of_requests, live_units=live_units, over=over, paused=paused
    )


def at_the_end(
    claims: list[Claim], *, available: int, limits: dict[int, int], live_units: dict[tuple[int, str], int]
) -> list[Decision]:
    """Decide when no unit can come back: both sales are over."""
    decisions = decide(claims, available=available, limits=limits, live_units=live_units, over=SALES)
    assert len(decisions) == len(claims)
    return decisions


def claim(seq: int, *, quantity: int = 1, buyer: str = "", sale_id: int = 1) -> Claim:
    return Claim(f"id-{seq}", Record(State.QUEUED, seq, quantity, sale_id, buyer or f"buyer-{seq}"))


def states(decisions: list[Decision]) -> list[tuple[int, str]]:
    return [(each.claim.record.seq, each.state.value) for each in decisions]


@given(claims=batches(), available=st.integers(0, 40), limits=LIMITS, live=LIVE)
def test_never_gives_more_than_is_available(
    claims: list[Claim], available: int, limits: dict[int, int], live: dict[tuple[int, str], int]
) -> None:
    assert held_units(at_the_end(claims, available=available, limits=limits, live_units=live)) <= available


@given(claims=batches(), available=st.integers(0, 40), limits=LIMITS, live=LIVE)
def test_decides_every_claim_once_in_order_of_seq(
    claims: list[Claim], available: int, limits: dict[int, int], live: dict[tuple[int, str], int]
) -> None:
    decided = [each.claim for each in at_the_end(claims, available=available, limits=limits, live_units=live)]
    assert decided == sorted(claims, key=lambda each: each.record.seq)


@given(claims=batches(), available=st.integers(0, 40), limits=LIMITS, live=LIVE)
def test_nobody_passes_the_limit_by_what_they_are_given(
    claims: list[Claim], available: int, limits: dict[int, int], live: dict[tuple[int, str], int]
) -> None:
    given_now: Counter[tuple[int, str]] = Counter()
    for each in at_the_end(claims, available=available, limits=limits, live_units=live):
        if each.state is State.HELD:
            given_now[each.claim.record.sale_id, each.claim.record.buyer] += each.claim.record.quantity
    for (sale_id, buyer), units in given_now.items():
        assert live.get((sale_id, buyer), 0) + units <= limits[sale_id]


@given(claims=batches(), available=st.integers(0, 40), limits=LIMITS, live=LIVE)
def test_each_refusal_was_true_at_its_turn(
    claims: list[Claim], available: int, limits: dict[int, int], live: dict[tuple[int, str], int]
) -> None:
    had, free = Counter(live), available
    for each in at_the_end(claims, available=available, limits=limits, live_units=live):
        owner, quantity = (each.claim.record.sale_id, each.claim.record.buyer), each.claim.record.quantity
        if each.state is State.HELD:
            free, had[owner] = free - quantity, had[owner] + quantity
        elif each.state is State.SOLD_OUT:
            assert quantity > free
            assert had[owner] + quantity <= limits[each.claim.record.sale_id]
        else:
            assert (each.state, each.reason) == (State.REFUSED, "limit_reached")
            assert had[owner] + quantity > limits[each.claim.record.sale_id]


@given(claims=batches(), available=st.integers(0, 40), limits=LIMITS, live=LIVE)
def test_what_is_left_over_fits_nobody_who_was_told_sold_out(
    claims: list[Claim], available: int, limits: dict[int, int], live: dict[tuple[int, str], int]
) -> None:
    decisions = at_the_end(claims, available=available, limits=limits, live_units=live)
    left = available - held_units(decisions)
    assert [each for each in decisions if each.state is State.SOLD_OUT and each.claim.record.quantity <= left] == []


@given(claims=batches(), available=st.integers(0, 40), limits=LIMITS, live=LIVE, cut=st.integers(0, 25))
def test_two_batches_decide_as_one_would(
    claims: list[Claim], available: int, limits: dict[int, int], live: dict[tuple[int, str], int], cut: int
) -> None:
    in_line = sorted(claims, key=lambda each: each.record.seq)
    whole = at_the_end(in_line, available=available, limits=limits, live_units=live)
    first = at_the_end(in_line[:cut], available=available, limits=limits, live_units=live)
    had = Counter(live)
    for each in first:
        if each.state is State.HELD:
            had[each.claim.record.sale_id, each.claim.record.buyer] += each.claim.record.quantity
    second = at_the_end(in_line[cut:], available=available - held_units(first), limits=limits, live_units=had)
    assert first + second == whole


def test_the_last_unit_goes_to_the_first_in_line() -> None:
    decisions = at_the_end([claim(30), claim(10), claim(20)], available=1, limits={1: 1}, live_units={})
    assert states(decisions) == [(10, "held"), (20, "sold_out"), (30, "sold_out")]


def test_a_claim_too_large_leaves_the_rest_to_those_behind_it() -> None:
    decisions = at_the_end([claim(1, quantity=3), claim(2, quantity=2)], available=2, limits={1: 3}, live_units={})
    assert states(decisions) == [(1, "sold_out"), (2, "held")]


def test_units_that_a_buyer_has_already_count_against_the_limit() -> None:
    decisions = at_the_end([claim(1, buyer="ann")], available=9, limits={1: 2}, live_units={(1, "ann"): 2})
    assert [(each.state, each.reason) for each in decisions] == [(State.REFUSED, "limit_reached")]


def test_a_limit_in_one_sale_says_nothing_about_another() -> None:
    elsewhere = claim(1, sale_id=2, buyer="ann")
    decisions = at_the_end([elsewhere], available=1, limits={1: 1, 2: 1}, live_units={(1, "ann"): 1})
    assert states(decisions) == [(1, "held")]


def test_live_units_of_the_caller_are_left_alone() -> None:
    live = {(1, "ann"): 1}
    at_the_end([claim(1, buyer="ann")], available=9, limits={1: 5}, live_units=live)
    assert live == {(1, "ann"): 1}


@given(claims=batches(), available=st.integers(0, 40), held=st.integers(0, 9), limits=LIMITS, live=LIVE)
def test_nobody_passes_one_who_waits_for_a_unit_to_come_back(
    claims: list[Claim], available: int, held: int, limits: dict[int, int], live: dict[tuple[int, str], int]
) -> None:
    decisions = decide(claims, available=available, held=held, limits=limits, live_units=live)
    in_line = sorted(claims, key=lambda each: each.record.seq)
    assert [each.claim for each in decisions] == in_line[: len(decisions)]
    if len(decisions) < len(in_line):
        free, wanted = available - held_units(decisions), in_line[len(decisions)].record.quantity
        assert free < wanted <= free + held + held_units(decisions)


@given(claims=batches(), available=st.integers(0, 40), held=st.integers(0, 9), limits=LIMITS, live=LIVE)
def test_sold_out_is_said_only_when_not_enough_can_come_back(
    claims: list[Claim], available: int, held: int, limits: dict[int, int], live: dict[tuple[int, str], int]
) -> None:
    free, may_return = available, held
    for each in decide(claims, available=available, held=held, limits=limits, live_units=live):
        if each.state is State.HELD:
            free, may_return = free - each.claim.record.quantity, may_return + each.claim.record.quantity
        elif each.state is State.SOLD_OUT:
            assert each.claim.record.quantity > free + may_return


def test_who_comes_after_the_last_unit_waits_until_it_is_paid() -> None:
    asked = [claim(1), claim(2)]
    waiting = decide(asked, available=1, limits={1: 1}, live_units={})
    assert states(waiting) == [(1, "held")]
    sold = decide(asked[1:], available=0, held=0, limits={1: 1}, live_units={})
    assert states(sold) == [(2, "sold_out")]


def test_a_sale_that_stands_still_decides_nobody() -> None:
    assert decide([claim(1)], available=9, limits={1: 1}, live_units={}, paused=(1,)) == []


def test_a_sale_that_is_over_gives_what_is_free_and_lets_nobody_wait() -> None:
    decisions = decide([claim(1), claim(2)], available=1, held=5, limits={1: 1}, live_units={}, over=(1,))
    assert states(decisions) == [(1, "held"), (2, "sold_out")]


def standing(seq: int, *, quantity: int = 1, sale_id: int = 1) -> Claim:
    """Return a claim on standby."""
    name, record = claim(seq, quantity=quantity, sale_id=sale_id)
    return Claim(name, record._replace(state=State.STANDBY))


def test_one_on_standby_is_passed_by_what_is_too_little_and_keeps_nobody_waiting() -> None:
    claims = [standing(1, quantity=2), standing(2), standing(3)]
    decisions = decide(claims, available=1, held=5, limits={1: 9}, live_units={})
    assert states(decisions) == [(2, "held")]


def test_nobody_on_standby_comes_before_one_who_waits() -> None:
    claims = [claim(1, quantity=2), standing(2)]
    assert decide(claims, available=1, held=5, limits={1: 9}, live_units={}) == []


def test_one_on_standby_is_not_sent_away_before_the_sale_is_over() -> None:
    claims = [standing(1), claim(2)]
    assert states(decide(claims, available=0, limits={1: 9}, live_units={})) == [(2, "sold_out")]
    at_end = decide(claims, available=0, limits={1: 9}, live_units={}, over=(1,))
    assert states(at_end) == [(1, "sold_out"), (2, "sold_out")]
