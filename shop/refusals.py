"""Says what an answer of the admission script means to a buyer. Never talks to Redis.
Called by the gate and the pages.
"""

from __future__ import annotations

import math
from datetime import datetime

from inventory.admission import Code
from inventory.exceptions import (
    FairdropError,
    IdempotencyMismatch,
    LimitReached,
    SaleClosed,
    SaleNotOpen,
    SaleNotPrimed,
    SoldOut,
)

PAUSED_RETRY_SECONDS = 5


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


def refusal(code: int, *, opens_at: datetime, pause_reason: str, now: datetime) -> FairdropError | None:
    """Return the error that an admission code stands for, None when the request was admitted."""
    match code:
        case Code.SOLD_OUT:
            return SoldOut()
        case Code.LIMIT_REACHED:
            return LimitReached()
        case Code.NOT_OPEN:
            return not_open(opens_at=opens_at, now=now)
        case Code.PAUSED:
            return paused(opens_at=opens_at, reason=pause_reason)
        case Code.CLOSED:
            return SaleClosed()
        case Code.NOT_PRIMED:
            return SaleNotPrimed()
        case Code.OTHER_QUANTITY:
            return IdempotencyMismatch()
        case _:
            return None
