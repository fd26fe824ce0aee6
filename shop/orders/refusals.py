"""Says what an answer of the admission script means to a buyer. Never talks to Redis."""

from __future__ import annotations

import math
from datetime import datetime

from inventory.exceptions import (
    CodeRequired,
    EmailRequired,
    EmailUsed,
    EndedTooOften,
    FairdropError,
    IdempotencyMismatch,
    InvalidRequest,
    LimitReached,
    LineFull,
    NetworkLimited,
    NetworkRevoked,
    PassRequired,
    SaleClosed,
    SaleNotOpen,
    SaleNotPrimed,
    SoldOut,
    TermsChanged,
)
from inventory.line.admission import MAX_ENDED_REQUESTS, Code
from shop.sales.catalogue import SaleCard

PAUSED_RETRY_SECONDS = 5
# Anyone may leave the line at any time, so nobody is told to stay away for long.
MIN_FULL_RETRY_SECONDS, MAX_FULL_RETRY_SECONDS = 1, 60
# What says nothing but its own text.
REFUSALS: dict[int, type[FairdropError]] = {
    Code.SOLD_OUT: SoldOut,
    Code.LIMIT_REACHED: LimitReached,
    Code.CLOSED: SaleClosed,
    Code.NOT_PRIMED: SaleNotPrimed,
    Code.OTHER_QUANTITY: IdempotencyMismatch,
    Code.NETWORK_LIMITED: NetworkLimited,
    Code.PASS_REQUIRED: PassRequired,
    Code.CODE_REQUIRED: CodeRequired,
    Code.EMAIL_REQUIRED: EmailRequired,
    Code.EMAIL_USED: EmailUsed,
    Code.NETWORK_REVOKED: NetworkRevoked,
}


def not_open(*, opens_at: datetime, now: datetime) -> SaleNotOpen:
    """Return the refusal of a request that came too early."""
    error = SaleNotOpen(opens_at=opens_at.isoformat())
    error.retry_after_seconds = max(1, math.ceil((opens_at - now).total_seconds()))
    return error


def paused(*, opens_at: datetime, reason: str) -> SaleNotOpen:
    """Return the refusal of a request that came while staff had paused the sale."""
    detail = f"This sale is paused: {reason}" if reason else "This sale is paused."
    error = SaleNotOpen(detail, opens_at=opens_at.isoformat())
    error.retry_after_seconds = PAUSED_RETRY_SECONDS
    return error


def full_retry_seconds(card: SaleCard, *, now: datetime) -> int:
    """Return when one who found the line full may come back: when the first hold may lapse, a minute at most."""
    left = (card.next_lapse_at - now).total_seconds() if card.next_lapse_at else MAX_FULL_RETRY_SECONDS
    return math.ceil(min(max(left, MIN_FULL_RETRY_SECONDS), MAX_FULL_RETRY_SECONDS))


def line_full(card: SaleCard, *, now: datetime) -> LineFull:
    """Return the refusal of a request that found no room in the line while units may still come free."""
    error = LineFull()
    error.retry_after_seconds = full_retry_seconds(card, now=now)
    return error


def terms_changed(card: SaleCard) -> TermsChanged:
    """Return the refusal of a request that was shown better terms than those of now."""
    return TermsChanged(terms_version=card.terms_version, price=str(card.price), per_buyer_limit=card.per_buyer_limit)


def refusal(code: int, card: SaleCard, *, now: datetime) -> FairdropError | None:
    """Return the error that an admission code stands for, None when the request was admitted."""
    match code:
        case Code.LINE_FULL:
            return line_full(card, now=now)
        case Code.NOT_OPEN:
            return not_open(opens_at=card.opens_at, now=now)
        case Code.PAUSED:
            return paused(opens_at=card.opens_at, reason=card.pause_reason)
        case Code.TERMS_CHANGED:
            return terms_changed(card)
        case Code.TERMS_UNKNOWN:
            return InvalidRequest("terms_version must be one that this sale has had")
        case Code.TOO_MANY_ENDED:
            ended = f"{MAX_ENDED_REQUESTS} of your requests in this sale ended unsold"
            return EndedTooOften(f"{ended}; it takes no more of yours.")
        case Code.PASS_SPENT:
            return PassRequired("This pass let another request in: get a new one.")
        case _:
            error = REFUSALS.get(code)
            return error() if error else None
