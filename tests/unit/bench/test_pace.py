"""A waiting buyer asks again soon near the front, seldom far behind, and never in step with the crowd.
Needs no server.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shop.orders.status import MAX_MS, MIN_MS, poll_after_ms

SEQS = st.integers(0, 2**53)


@given(position=st.integers(1, 10**7), seq=SEQS)
def test_the_pause_stays_within_its_bounds(position: int, seq: int) -> None:
    assert MIN_MS * 8 // 10 <= poll_after_ms(position, seq) <= MAX_MS * 12 // 10


@given(position=st.integers(1, 10**7), further=st.integers(0, 10**7), seq=SEQS)
def test_nobody_further_behind_is_told_to_ask_sooner(position: int, further: int, seq: int) -> None:
    assert poll_after_ms(position + further, seq) >= poll_after_ms(position, seq)


@given(position=st.integers(-3, 0), seq=SEQS)
def test_who_does_not_wait_need_not_hurry(position: int, seq: int) -> None:
    assert poll_after_ms(position, seq) == MAX_MS


def test_a_crowd_far_behind_is_scattered_by_forty_percent() -> None:
    pauses = {poll_after_ms(10**6, seq) for seq in range(41)}
    assert (min(pauses), max(pauses), len(pauses)) == (4000, 6000, 41)
