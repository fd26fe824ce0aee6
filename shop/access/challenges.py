"""Makes challenges and checks what was found for them: ALTCHA's proof of work, version 2, with scrypt, whose memory
makes it dear for machines that have little of it a core. To make one costs this process one scrypt, to check one none:
the answer is signed with the challenge. Both block for a moment, so never on an event loop.
"""

from __future__ import annotations

import hmac
import secrets
from functools import cache
from typing import Any

import altcha
from django.conf import settings

from inventory.exceptions import PassRequired
from inventory.redis import clocks
from shop.access.passes import NOT_OURS, Pass, make_pass
from shop.sales.catalogue import SaleCard

# 128 bytes * COST * BLOCK: half a MiB for each try, and a millisecond of a core.
ALGORITHM, COST, BLOCK = "SCRYPT", 512, 8
# So long a challenge may be answered.
CHALLENGE_SECONDS = 600
# A real one has some 900 characters.
MAX_PAYLOAD = 2_000


@cache
def _secrets() -> list[tuple[bytes, bytes]]:
    """Return the keys of challenges and of their answers; the first pair signs, every one verifies."""
    keys = [key.encode() for key in settings.TOKEN_KEYS]
    return [(hmac.digest(key, b"challenge", "sha256"), hmac.digest(key, b"answer", "sha256")) for key in keys]


def make_challenge(card: SaleCard, *, buyer: str) -> dict[str, Any]:
    """Return a challenge for `buyer` in a sale, as ALTCHA writes it.

    Its answer is any number from 1 to below twice FAIRDROP_PASS_WORK, which is in its data as `most`: the tries are
    bounded, and a page can say how far it is. Each is as likely, so nobody saves tries by where they begin.
    """
    work, (signs, answers) = settings.PASS_WORK, _secrets()[0]
    challenge = altcha.create_challenge(
        ALGORITHM,
        COST,
        counter=1 + secrets.randbelow(2 * work - 1),
        memory_cost=BLOCK,
        parallelism=1,
        expires_at=int(clocks.seconds()) + CHALLENGE_SECONDS,
        data={"sale": card.slug, "buyer": buyer, "most": 2 * work},
        hmac_secret=signs,
        hmac_key_secret=answers,
    )
    return challenge.to_dict()


def redeem(payload: str, card: SaleCard, *, buyer: str) -> Pass:
    """Return the pass for a solved challenge; the same payload gives the same pass.

    Raises PassRequired: not ours, another buyer's or sale's, unsolved, or over.
    """
    found = _read(payload)
    results = [altcha.verify_solution(found, signs, hmac_key_secret=answers) for signs, answers in _secrets()]
    signed = [result for result in results if not result.invalid_signature]
    parameters = found.challenge.parameters
    if any(result.expired for result in signed):
        raise PassRequired("This challenge has ended: get a new one.")
    if not any(result.verified for result in signed):
        raise PassRequired("This does not solve a challenge of yours.")
    if (parameters.data or {}) | {"most": 0} != {"sale": card.slug, "buyer": buyer, "most": 0}:
        raise PassRequired(NOT_OURS)
    return make_pass(card, buyer=buyer, proof=str(found.challenge.signature), until=int(parameters.expires_at or 0))


def _read(payload: str) -> altcha.Payload:
    if len(payload) > MAX_PAYLOAD:
        raise PassRequired("This does not solve a challenge of yours.")
    try:
        return altcha.Payload.from_base64(payload)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PassRequired("This does not solve a challenge of yours.") from None
