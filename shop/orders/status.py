"""Writes the status answer of a request, the same wherever it is asked for. Pure: reads no store, decides nothing."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from inventory.line.reading import LineFigures
from inventory.redis import clocks
from inventory.states import WAITING_STATES, State
from shop.orders.requests import RequestView
from shop.sales.catalogue import SaleCard

# What the estimate is stretched by, in both directions.
EARLIER, LATER = 0.7, 1.6
MIN_MS = 250
MAX_MS = 5000


def iso(moment: datetime | None) -> str | None:
    """Return an aware datetime as ISO 8601, or None."""
    return None if moment is None else moment.isoformat()


def poll_after_ms(position: int, seq: int) -> int:
    """Return the pause before the next poll: short near the front, ± 20 % so that a crowd does not ask in step.

    position: 0 when the request does not wait. seq: its place in µs, whose last digits scatter the crowd.
    """
    if position <= 0:
        return MAX_MS
    calm = min(MAX_MS, MIN_MS + position // 4)
    return calm * (80 + seq % 41) // 100


def status_answer(
    view: RequestView, card: SaleCard, *, figures: LineFigures | None, decided_per_second: float = 0.0
) -> dict[str, Any]:
    """Return what the contract says of a request. figures: the line's, None when they are not known."""
    waiting = view.state in WAITING_STATES
    # Nobody on standby can be told when a unit comes back, nor has a reason to look often.
    moving = waiting and view.state != State.STANDBY
    position, now = view.position or 0, clocks.DATABASE.now()  # by which holds end
    eta = math.ceil(position / decided_per_second) if moving and decided_per_second > 0 else None
    return {
        "request_id": view.request_id,
        "sale": card.slug,
        "quantity": view.quantity,
        "state": view.state,
        "seq": view.seq,
        "position": position if waiting else None,
        "ahead": max(position - 1, 0) if waiting else None,
        "eta_seconds": eta,
        "eta_range_seconds": eta_range_seconds(position, decided_per_second) if moving else None,
        **waiting_facts(view.state, card, position=position, figures=figures, now=now),
        "hold_expires_at": iso(view.hold_expires_at),
        "order_url": f"/requests/{view.request_id}/",
        "poll_after_ms": poll_after_ms(position if moving else 0, view.seq),
        "server_time": now.isoformat(),
    }


def eta_range_seconds(position: int, decided_per_second: float) -> list[int] | None:
    """Return between how many seconds the decision is to be expected, None when the pace is not known.

    A range, and rather too late than too early: the pace of the last seconds is not that of the next.
    """
    if position <= 0 or decided_per_second <= 0:
        return None
    eta = position / decided_per_second
    return [math.floor(eta * EARLIER), math.ceil(eta * LATER) + 1]


def is_out_of_reach(position: int, figures: LineFigures | None) -> bool | None:
    """Say whether more people are ahead than units can come free, None when that is not known."""
    if figures is None or position <= 0:
        return None
    return position > figures.available + figures.held


def waiting_facts(
    state: State, card: SaleCard, *, position: int, figures: LineFigures | None, now: datetime
) -> dict[str, Any]:
    """Return what a waiting buyer may hope for; all null for one that does not wait.

    out_of_reach: more people are ahead than units can come free;
    holds_ahead: units held that may come back; next_lapse_at: when the first of them may; pause_reason: why the whole
    line stands still.
    """
    waiting = state in WAITING_STATES
    next_lapse_at = card.next_lapse_at if state in (State.WAITLISTED, State.STANDBY) else None
    paused = waiting and card.state_at(now) == "paused"
    return {
        "out_of_reach": is_out_of_reach(position, figures) if waiting and state != State.STANDBY else None,
        "holds_ahead": figures.held if waiting and figures is not None else None,
        "next_lapse_at": iso(next_lapse_at),
        "pause_reason": card.pause_reason if paused else None,
    }
