"""Decides, in order of seq, which requests of a batch get their units and where the line must wait. Pure.
Never reads a clock or a store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from inventory.records import Record
from inventory.states import Reason, State


class Claim(NamedTuple):
    """A request to decide, as its record has it."""

    request_id: str
    record: Record


class Decision(NamedTuple):
    """What became of a claim; reason: why, None when the state says all."""

    claim: Claim
    state: State
    reason: Reason | None = None


def allocate(
    claims: Sequence[Claim],
    *,
    available: int,
    held: int,
    limits: Mapping[str, int],
    live_units: Mapping[tuple[int, str], int],
    over: Collection[int] = frozenset(),
    paused: Collection[int] = frozenset(),
) -> list[Decision]:
    """Decide `claims` in order of seq, as far as the line may go (I8, I9).

    available, held: units free, and units that may come back. limits: request_id → units a buyer. live_units:
    (sale_id, buyer) → units held or paid. over, paused: ids of sales that have ended, or stand still.
    While enough held units may come back, a claim that does not fit keeps its place and everyone behind it theirs;
    when not, it leaves what is free to smaller ones behind it: no unit stays unsold. A claim on standby keeps its place
    until enough is free or its sale is over, and keeps nobody waiting.
    """
    had = dict(live_units)
    decisions: list[Decision] = []
    for claim in sorted(claims, key=lambda each: each.record.seq):
        sale_id, quantity = claim.record.sale_id, claim.record.quantity
        owner = (sale_id, claim.record.buyer)
        if sale_id in paused and sale_id not in over:
            return decisions
        if had.get(owner, 0) + quantity > limits[claim.request_id]:
            decisions.append(Decision(claim, State.REFUSED, Reason.LIMIT_REACHED))
        elif quantity <= available:
            available -= quantity
            held += quantity
            had[owner] = had.get(owner, 0) + quantity
            decisions.append(Decision(claim, State.HELD))
        elif claim.record.state is State.STANDBY and sale_id not in over:
            continue
        elif quantity <= available + held and sale_id not in over:
            return decisions
        else:
            decisions.append(Decision(claim, State.SOLD_OUT))
    return decisions
