"""Reads what a purchase asks for: its body and its Idempotency-Key. Never judges whether the buyer may have it, and
touches no store.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from inventory.exceptions import InvalidRequest
from shop.access import codes
from shop.http import read_json_object
from shop.orders.requests import MAX_KEY_LENGTH, MAX_UNITS
from shop.replies import Headers

MAX_VERSION = 2**53


class Wish(NamedTuple):
    """What a body asks for. terms_version: of the terms that were shown, 0 when none is named; ticket: '' for none.

    standby: without room in the line, wait on standby for what comes back. code: the access code, '' for none.
    """

    quantity: int
    terms_version: int = 0
    ticket: str = ""
    standby: bool = False
    code: str = ""


@lru_cache(maxsize=256)
def read_wish(body: bytes) -> Wish:
    """Return what `body` asks for: "quantity" from 1 to 1000, perhaps "terms_version", "ticket", "standby", "code".

    Raises InvalidRequest. Cached: a sale's bodies are the same few bytes thousands of times over. Errors are not kept.
    """
    wish = read_json_object(body)
    unknown = sorted(wish.keys() - set(Wish._fields))
    if unknown:
        raise InvalidRequest(f"unknown field: {unknown[0][:40]!a}")
    quantity, version = wish.get("quantity"), wish.get("terms_version", 0)
    if type(quantity) is not int or not 1 <= quantity <= MAX_UNITS:
        raise InvalidRequest(f"quantity must be a whole number from 1 to {MAX_UNITS}")
    if type(version) is not int or ("terms_version" in wish and not 1 <= version < MAX_VERSION):
        raise InvalidRequest("terms_version must be one that this sale has had")
    ticket = wish.get("ticket", "")
    if not isinstance(ticket, str) or ("ticket" in wish and not ticket):
        raise InvalidRequest("ticket must be a text")
    standby = wish.get("standby", False)
    if type(standby) is not bool:
        raise InvalidRequest("standby must be true or false")
    code = wish.get("code", "")
    if not isinstance(code, str) or len(code) > codes.MAX_TYPED:
        raise InvalidRequest(f"code must be a text of at most {codes.MAX_TYPED} characters")
    return Wish(quantity, version, ticket, standby, code)


def read_idempotency_key(headers: Headers) -> str:
    """Return the Idempotency-Key, '' when there is none. Raises InvalidRequest when it is too long or not printable."""
    raw = headers.get(b"idempotency-key")
    if raw is None:
        return ""
    text = raw.decode("latin-1")
    if not 1 <= len(text) <= MAX_KEY_LENGTH or not text.isascii() or not text.isprintable():
        raise InvalidRequest(f"Idempotency-Key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters")
    return text
