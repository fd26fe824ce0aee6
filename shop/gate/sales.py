"""GET /api/v1/sales and /api/v1/sales/<slug>: what is offered, from process memory. Never asks a store itself.
Called by the gate's router.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shop.gate.entries import SaleEntry


def sale_answer(entry: SaleEntry) -> dict[str, Any]:
    """Return one sale as the contract shows it; stock and queue in units, as fresh as the board."""
    card, figures, now = entry.card, entry.figures, datetime.now(UTC)
    stock = figures or card
    return {
        "slug": card.slug,
        "sku": card.sku,
        "title": card.title,
        "price": str(card.price),
        "currency": card.currency,
        "state": card.state_at(now),
        "quantity": card.quantity,
        "available": stock.available,
        "held": stock.held,
        "sold": stock.sold,
        "queued": figures.queued if figures else 0,
        "per_buyer_limit": card.per_buyer_limit,
        "hold_seconds": card.hold_seconds,
        "terms_version": card.terms_version,
        "opens_at": card.opens_at.isoformat(),
        "closes_at": card.closes_at.isoformat(),
        "server_time": now.isoformat(),
    }
