"""The crowd's plan: exact sums, the same for any number of processes, the same for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.plan.population import (
    AGAIN,
    AUTO_MIX,
    BOT,
    BOT_KEYS,
    BUILT_IN,
    CANCELS,
    DECKS,
    DOUBLE,
    EVERYBODY,
    EVERYBODY_MIX,
    HOARDER,
    HONEST,
    IMPATIENT,
    LAPSES,
    LATE_PAYER,
    MIXES,
    PAYS,
    PAYS_LATE,
    SHOPPER,
    WATCHER,
    Population,
    who_comes,
)

SALES = ("a", "b", "c")


def population(*, buyers: int = 3000, attempts: int = 20_000, seed: int = 1) -> Population:
    """Return the crowd of the demo, or a variation."""
    return Population(sales=SALES, buyers=buyers, attempts=attempts, seed=seed)


def test_the_demo_crowd_is_exactly_what_was_asked_for() -> None:
    visits = list(population().visits())
    wishes = sum(len(visit.wishes) for visit in visits)
    assert len(visits) == 3000
    assert sum(visit.clicks for visit in visits) == 20_000
    assert 20_000 - wishes == 6000


@given(buyers=st.integers(1, 60), extra=st.integers(0, 300), parts=st.integers(1, 5), seed=st.integers(0, 9))
def test_parts_are_together_the_whole_and_sums_are_exact(buyers: int, extra: int, parts: int, seed: int) -> None:
    crowd = population(buyers=buyers, attempts=buyers + extra, seed=seed)
    whole = list(crowd.visits())
    shared = [visit for part in range(parts) for visit in crowd.visits(part=part, parts=parts)]
    assert sorted(shared, key=lambda visit: visit.number) == whole
    assert sum(visit.clicks for visit in whole) == buyers + extra
    assert all(visit.wishes for visit in whole)


def test_every_wish_has_its_own_key_and_a_seed_names_the_crowd() -> None:
    keys = [wish.key for visit in population().visits() for wish in visit.wishes]
    assert len(set(keys)) == len(keys)
    assert population().visit(7) == population().visit(7) != population(seed=2).visit(7)


def test_of_every_ten_exactly_so_many_pay_whoever_wins() -> None:
    for kind, deck in DECKS.items():
        drawn = list(islice(population().cards("a", kind), 3 * len(deck)))
        rounds = [drawn[start : start + len(deck)] for start in range(0, len(drawn), len(deck))]
        assert all(sorted(each) == sorted(deck) for each in rounds)
        assert len({tuple(each) for each in rounds}) > 1  # shuffled again each time
        again = population().cards("a", kind)
        assert drawn == list(islice(again, len(drawn)))
        assert drawn != list(islice(population(seed=2).cards("a", kind), len(drawn)))


def everybody(*, buyers: int = 1000, seed: int = 1, mix: str = EVERYBODY_MIX) -> Population:
    """Return a crowd of every kind, or of one."""
    return Population(sales=SALES, buyers=buyers, attempts=buyers, seed=seed, kinds=MIXES[mix])


def test_of_every_twenty_exactly_so_many_are_of_each_kind() -> None:
    round_of = sum(EVERYBODY.values())
    kinds = [everybody().kind_of(number) for number in range(1000)]
    for start in range(0, 1000, round_of):
        assert Counter(kinds[start : start + round_of]) == EVERYBODY
    assert kinds[:round_of] != kinds[round_of : 2 * round_of]  # shuffled again each time
    assert kinds == [everybody().kind_of(number) for number in range(1000)]
    assert kinds != [everybody(seed=2).kind_of(number) for number in range(1000)]


@settings(max_examples=40, deadline=None)
@given(buyers=st.integers(1, 60), parts=st.integers(1, 5), seed=st.integers(0, 9))
def test_parts_of_every_kind_are_together_the_whole(buyers: int, parts: int, seed: int) -> None:
    crowd = everybody(buyers=buyers, seed=seed)
    whole = list(crowd.visits())
    shared = [visit for part in range(parts) for visit in crowd.visits(part=part, parts=parts)]
    assert sorted(shared, key=lambda visit: visit.number) == whole
    assert crowd.clicks == sum(visit.clicks for visit in whole)
    keys = [wish.key for visit in whole for wish in visit.wishes]
    assert len(set(keys)) == len(keys)


def test_each_kind_goes_about_it_in_its_own_way() -> None:
    (impatient, bot, honest) = (everybody(mix=kind).visit(0) for kind in (IMPATIENT, BOT, HONEST))
    assert (impatient.page_views, impatient.at_once, len(impatient.wishes)) == (2, True, 2)
    assert {DOUBLE, AGAIN} <= {style for wish in impatient.wishes for style in wish.repeats}
    assert (bot.page_views, bot.at_once, bot.hammers, bot.clicks) == (0, True, True, 2 * BOT_KEYS)
    assert len({wish.sale for wish in bot.wishes}) == 1
    assert (honest.page_views, honest.clicks) == (1, 1)


@pytest.mark.parametrize(
    ("buyer_kind", "ends"), [(HOARDER, {LAPSES}), (LATE_PAYER, {PAYS_LATE}), (BOT, {PAYS}), (WATCHER, {PAYS, CANCELS})]
)
def test_what_a_kind_does_with_a_unit(buyer_kind: str, ends: set[str]) -> None:
    cards = list(islice(everybody().cards("a", "held", buyer_kind=buyer_kind), 40))
    assert set(cards) == ends
    assert cards == list(islice(everybody().cards("a", "held", buyer_kind=buyer_kind), 40))


def test_the_standard_crowd_draws_the_cards_it_always_drew() -> None:
    assert population().clicks == 20_000
    assert population().visit(7).kind == SHOPPER
    first = list(islice(population().cards("a", "held"), 10))
    assert first == random.Random("1:a:held:0").sample(DECKS["held"], 10)


def test_who_comes_is_who_was_chosen() -> None:
    own = {"family": 10}
    assert who_comes(BUILT_IN, mix=AUTO_MIX, planned=True) == EVERYBODY
    assert who_comes(BUILT_IN, mix=AUTO_MIX, planned=False) == {SHOPPER: BUILT_IN[SHOPPER]}
    assert who_comes(BUILT_IN | own, mix=AUTO_MIX, planned=True) == EVERYBODY | own
    assert who_comes({BOT: 3, HONEST: 1}, mix=AUTO_MIX, planned=False) == {HONEST: 1, BOT: 3}
    assert who_comes({BOT: 3, HONEST: 1}, mix=BOT, planned=False) == {BOT: 3}
    assert who_comes({BOT: 3}, mix=HONEST, planned=True) == {}
    # The order in which they are offered is Locust's business: the same seed is the same crowd.
    assert list(who_comes(dict(reversed(EVERYBODY.items())), mix=EVERYBODY_MIX, planned=True)) == list(EVERYBODY)


def test_shoppers_come_among_others_too() -> None:
    crowd = Population(sales=SALES, buyers=60, attempts=240, seed=1, kinds={SHOPPER: 2, HONEST: 1})
    visits = list(crowd.visits())
    assert Counter(visit.kind for visit in visits) == {SHOPPER: 40, HONEST: 20}
    assert crowd.clicks == sum(visit.clicks for visit in visits) == 40 * 4 + 20
