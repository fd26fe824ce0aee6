"""GET /api/v1/sales and /api/v1/sales/<slug>: what is offered and what was, as the contract shows it.
Never asks a store itself.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from inventory.exceptions import InvalidRequest
from inventory.line.reading import LineFigures
from inventory.redis import clocks
from shop.access.rush import asks_for_pass
from shop.gate.sales.state import SaleEntry
from shop.http import PAGE_NUMBER
from shop.models import Sale
from shop.sales.catalogue import SaleCard

NO_EMAIL_ASKED = str(Sale.EmailMode.NEVER)


def sale_answer(entry: SaleEntry) -> dict[str, Any]:
    """Return one sale as the contract shows it; stock and queue in units, as fresh as the board."""
    figures = entry.figures
    return _answer(entry.card, stock=figures or entry.card, queued=figures.queued if figures else 0)


def past_answer(card: SaleCard) -> dict[str, Any]:
    """Return a sale that the board does not keep as the contract shows it; stock in units, by the database."""
    return _answer(card, stock=card, queued=0)


def page_asked(query: bytes) -> int | None:
    """Return which page of past sales `query` asks for, None when it asks for the list. Raises InvalidRequest."""
    try:
        asked = parse_qs(query.decode("ascii"), keep_blank_values=True, max_num_fields=10)
    except ValueError as error:
        raise InvalidRequest("the query cannot be read") from error
    ended, page = asked.get("ended"), asked.get("page", ["1"])
    if ended is None and "page" not in asked:
        return None
    if ended != ["1"]:
        raise InvalidRequest("past sales are at ?ended=1, or with a page at ?ended=1&page=2")
    if len(page) != 1 or not PAGE_NUMBER.fullmatch(page[0]):
        raise InvalidRequest("page must be a whole number from 1")
    return int(page[0])


def _required(card: SaleCard, now: datetime) -> list[str]:
    """Return what a request for units must bring now; before the opening what it must bring then."""
    is_public = card.is_public(now)
    asked = {
        "pass": asks_for_pass(card),
        "code": card.codes_required and not is_public,
        "email": card.email_mode != NO_EMAIL_ASKED,
        "list": bool(card.email_list) and not is_public,
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _answer(card: SaleCard, *, stock: LineFigures | SaleCard, queued: int) -> dict[str, Any]:
    now = clocks.now()
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
        "queued": queued,
        "per_buyer_limit": card.per_buyer_limit,
        "per_network_limit": card.network_limit,
        "hold_seconds": card.hold_seconds,
        "terms_version": card.terms_version,
        "requires": _required(card, now),
        "opens_at": card.opens_at.isoformat(),
        "public_at": card.public_at and card.public_at.isoformat(),
        "closes_at": card.closes_at.isoformat(),
        "server_time": now.isoformat(),
    }
