"""Gives buyers their tokens and reads them. Never stores anything. Called by the gate and the pages."""

from __future__ import annotations

import re
import secrets
from functools import cache

from django.conf import settings

from inventory.exceptions import Unauthenticated
from inventory.signatures import MAC_LENGTH, Signer

COOKIE_NAME = "buyer"
COOKIE_MAX_AGE_SECONDS = 180 * 24 * 3600
BUYER_PATTERN = re.compile(r"[A-Za-z0-9_-]{22}")


@cache
def token_signer() -> Signer:
    """Return the signer of buyer tokens; its first key signs (rotation: settings.TOKEN_KEYS)."""
    return Signer(settings.TOKEN_KEYS, purpose="buyer")


@cache
def ticket_signer() -> Signer:
    """Return the signer of tickets."""
    return Signer(settings.TOKEN_KEYS, purpose="ticket")


def issue_buyer() -> tuple[str, str]:
    """Return a new buyer (128 random bits as 22 characters) and the token that proves it."""
    buyer = secrets.token_urlsafe(16)
    return buyer, f"{buyer}.{token_signer().sign(buyer)}"


def verify_token(token: str) -> str:
    """Return the buyer whom `token` proves. Raises Unauthenticated when it is forged, truncated or missing."""
    buyer, _, signature = token.partition(".")
    if len(signature) != MAC_LENGTH or not BUYER_PATTERN.fullmatch(buyer):
        raise Unauthenticated
    if not token_signer().verify(buyer, signature):
        raise Unauthenticated
    return buyer
