"""Gives buyers their tokens and reads them. Never stores anything."""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable
from functools import lru_cache

from django.conf import settings

from inventory.exceptions import Unauthenticated
from inventory.signing import MAC_LENGTH, Signer, signer_for
from shop.client_address import network_mark

COOKIE_NAME = f"{settings.COOKIE_PREFIX}buyer"
# Under TLS too, before the prefix: read until the last of those cookies has ended.
OLD_COOKIE_NAME = "buyer"
DAY_SECONDS = 24 * 3600
COOKIE_MAX_AGE_SECONDS = settings.BUYER_DAYS * DAY_SECONDS
# Tokens from before they had a day count as signed on this one: 2026-11-23, the last on which there were any.
UNDATED_DAY = 20_780
# The buyer, the day, counted from 1970, on which the token was signed, and the mark of the network to which it was
# given. One from before tokens had a day, or a mark, has none.
SIGNED_TEXT = re.compile(r"([A-Za-z0-9_-]{22})(?:\.([0-9]{1,6})(?:\.([0-9a-f]{12}))?)?")


def token_signer() -> Signer:
    """Return the signer of buyer tokens."""
    return signer_for("buyer")


def ticket_signer() -> Signer:
    """Return the signer of tickets."""
    return signer_for("ticket")


def issue_buyer(network: str = "") -> tuple[str, str]:
    """Return a new buyer (128 random bits as 22 characters) and the token that proves it.

    network: to which it is given, '' when that is not known.
    """
    buyer = secrets.token_urlsafe(16)
    return buyer, token_of(buyer, mark=network_mark(network) if network else "")


def replace_buyer(token: str, *, key: str, network: str = "") -> tuple[str, str]:
    """Return the new buyer of a browser whose `token` cannot be verified, and the token that proves it.

    key: the idempotency key of the press, so that a press that is sent again is the same buyer's. network: as in
    issue_buyer.
    """
    buyer = signer_for("new buyer").sign(f"{token} {key}")
    return buyer, token_of(buyer, mark=network_mark(network) if network else "")


def token_of(buyer: str, *, mark: str = "") -> str:
    """Return a token for `buyer`, signed today by the first key. mark: of the network to which it is given."""
    text = f"{buyer}.{today()}.{mark}" if mark else f"{buyer}.{today()}"
    return f"{text}.{token_signer().sign(text)}"


def mark_in(token: str) -> str:
    """Return the mark of the network to which a sound token was given, '' when it has none."""
    found = SIGNED_TEXT.fullmatch(token.rpartition(".")[0])
    return (found[3] or "") if found else ""


def today() -> int:
    """Return the day, counted from 1970."""
    return int(time.time()) // DAY_SECONDS


@lru_cache(maxsize=1)
def first_days(day: int) -> tuple[int, int]:
    """Return on which days a token may have been signed at the earliest to be good on `day`, and to be kept on it."""
    return day - settings.BUYER_DAYS, day - settings.BUYER_DAYS // 2


def has_ended(day: str | None) -> bool:
    """Say whether a token is too old. day: on which it was signed, None for one that names none."""
    return int(day or UNDATED_DAY) < first_days(today())[0]


def verify_token(token: str) -> str:
    """Return the buyer whom `token` proves. Raises Unauthenticated: forged, truncated, over or missing."""
    text, _, signature = token.rpartition(".")
    found = SIGNED_TEXT.fullmatch(text)
    if found is None or len(signature) != MAC_LENGTH or not token_signer().verify(text, signature):
        raise Unauthenticated
    if has_ended(found[2]):
        raise Unauthenticated("This token has ended: get a new one from POST /api/v1/buyers.")
    return found[1]


def token_to_set(token: str, *, issue: Callable[[], str]) -> str:
    """Return the token that a page gives to who sent `token`: '' when that is kept, a newer one, or a new buyer's.

    issue: returns the token of a new buyer, or '' when this reader gets none.

    A well-formed token is never replaced by another buyer's, even if this process cannot verify it: during a key
    rotation another process can, and that buyer's place in line depends on it. One that has ended is.
    """
    text, _, signature = token.rpartition(".")
    found = SIGNED_TEXT.fullmatch(text)
    if found is None or len(signature) != MAC_LENGTH:
        return issue()
    signer = token_signer()
    is_newest = found[2] is not None and hmac.compare_digest(signer.sign(text).encode(), signature.encode())
    if not is_newest and not signer.verify(text, signature):
        return ""
    if has_ended(found[2]):
        return issue()
    is_young = is_newest and int(found[2]) >= first_days(today())[1]
    return "" if is_young else token_of(found[1], mark=found[3] or "")


def token_sent(cookie: Callable[[str], str]) -> str:
    """Return the token that a browser sent, '' for none. cookie: gives a cookie by its name.

    Under OLD_COOKIE_NAME only a token without a day counts, and there is no new one: under TLS any other host of the
    domain can set that cookie, and a press with it buys for the buyer of its token.
    """
    old = cookie(OLD_COOKIE_NAME)
    return cookie(COOKIE_NAME) or ("" if old.count(".") > 1 else old)


def set_cookie_header(token: str) -> bytes:
    """Return the value of a Set-Cookie header that gives `token` to a browser."""
    secure = "; Secure" if settings.BEHIND_TLS else ""
    return f"{COOKIE_NAME}={token}; HttpOnly; Max-Age={COOKIE_MAX_AGE_SECONDS}; Path=/; SameSite=Lax{secure}".encode()
