"""Decides, in order of seq, which requests of a batch get their units. Pure: no clock, no storage.
Called by settlement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inventory.outcomes import State


class Claim(NamedTuple):
    """A request to decide; seq in µs, quantity in units."""

    request_id: str
    sale_id: int
    buyer: str
    quantity: int
    seq: int


class Decision(NamedTuple):
    """What became of a claim; reason is a word for the books, empty when the state says all."""

    claim: Claim
    state: State
    reason: str = ""


def allocate(
    claims: Sequence[Claim],
    *,
    available: int,
    limits: Mapping[int, int],
    live_units: Mapping[tuple[int, str], int],
) -> list[Decision]:
    """Return a decision for each claim, in order of seq (I8a).

    available: units free now. limits: sale_id → units a buyer. live_units: (sale_id, buyer) → units held or paid.
    A claim that does not fit leaves what is free to smaller ones behind it: no unit stays unsold (I9).
    """
    had = dict(live_units)
    decisions = []
    for claim in sorted(claims, key=lambda each: each.seq):
        owner = (claim.sale_id, claim.buyer)
        if had.get(owner, 0) + claim.quantity > limits[claim.sale_id]:
            decisions.append(Decision(claim, State.REFUSED, "limit_reached"))
        elif claim.quantity > available:
            decisions.append(Decision(claim, State.SOLD_OUT))
        else:
            available -= claim.quantity
            had[owner] = had.get(owner, 0) + claim.quantity
            decisions.append(Decision(claim, State.HELD))
    return decisions
