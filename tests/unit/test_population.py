"""The crowd's plan: exact sums, the same for any number of processes, the same for the same seed."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from loadtest.population import DECKS, Population

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
        assert len({tuple(each) for each in rounds}) > 1  # shuffled anew each time
        again = population().cards("a", kind)
        assert drawn == list(islice(again, len(drawn)))
        assert drawn != list(islice(population(seed=2).cards("a", kind), len(drawn)))
