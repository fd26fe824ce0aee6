"""Reads what Stripe says: its signed events, and its objects when it is asked. Never believes an unsigned byte.
Says only what is certain: money that was captured or given back, a card that was declined. A session that is open or
over says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import stripe
import structlog
from django.conf import settings

from inventory.exceptions import InvalidRequest, Unavailable
from shop.payments.providers import Kind, Notice
from shop.stripe.amounts import from_units

log = structlog.get_logger(__name__)

HEADER = "Stripe-Signature"
# As long as the library's own; a notice that somebody kept to send it again is older.
TOLERANCE_SECONDS = 300
# Under this name Stripe keeps our reference: with the session, its payment, and the charge that it becomes.
REFERENCE = "fairdrop_payment"
# no_payment_required: a price of 0.
PAID = ("paid", "no_payment_required")
# Of Radar, Stripe's own judge of cards.
HIGH_RISK = ("elevated", "highest")


def read_event(headers: Mapping[str, str], body: bytes) -> Notice | None:
    """Return the notice in an event, None when it says nothing of a payment of this shop's.

    Raises InvalidRequest when it is not signed, not by Stripe, too old, or no event; Unavailable without a secret.
    """
    if not settings.STRIPE_WEBHOOK_SECRET:
        raise Unavailable("Stripe is off: FAIRDROP_STRIPE_WEBHOOK_SECRET is not set")
    try:
        stripe.WebhookSignature.verify_header(
            body, headers.get(HEADER), settings.STRIPE_WEBHOOK_SECRET, TOLERANCE_SECONDS
        )
    except (stripe.SignatureVerificationError, UnicodeDecodeError, TypeError) as error:
        raise InvalidRequest(f"{HEADER} is missing, too old, or not that of this body") from error
    try:
        event = json.loads(body)
        before = event["data"].get("previous_attributes") or {}
        return _notice_of_event(event["type"], event["id"], event["data"]["object"], before=before)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest("not a valid event") from error


def _notice_of_event(kind: str, event_id: str, what: dict[str, Any], *, before: dict[str, Any]) -> Notice | None:
    if kind == "checkout.session.completed":
        return captured(what, event_id=event_id)
    if kind == "charge.succeeded":
        return collected(what, event_id=event_id)
    if kind == "charge.failed":
        return declined(what, event_id=event_id)
    if kind == "charge.refunded":
        return refunded(what, event_id=event_id)
    # Told again of each later change, as of a note: only the change to "canceled" is news.
    is_cancelled = kind == "refund.updated" and what["status"] == "canceled" and "status" in before
    if kind == "refund.failed" or is_cancelled:
        # The money that we took for given back lies in the shop's balance at Stripe: a person must send it.
        log.error("Stripe could not give money back", action="refund_failed", refund=what["id"])
        return _notice("refund_failed", what, units=what["amount"], event_id=event_id)
    return None


def captured(session: dict[str, Any], *, event_id: str = "") -> Notice | None:
    """Return the notice that a session was paid, None while it is not, or when it is none of this shop's."""
    if session["status"] != "complete" or session["payment_status"] not in PAID:
        return None
    return _notice("captured", session, units=session["amount_total"], event_id=event_id)


def collected(charge: dict[str, Any], *, event_id: str) -> Notice | None:
    """Return the notice that a charge was collected, with its card; None when it is none of this shop's.

    It says the same as its session's event, and which of the two comes first does not matter: money is taken once.
    """
    if not charge["captured"]:
        return None
    return _notice("captured", charge, units=charge["amount_captured"], event_id=event_id, card=card_of(charge))


def card_of(charge: dict[str, Any]) -> str:
    """Return Stripe's fingerprint of the card that paid, the same for the same card in this account; '' for none."""
    return str(((charge.get("payment_method_details") or {}).get("card") or {}).get("fingerprint") or "")


def declined(charge: dict[str, Any], *, event_id: str) -> Notice | None:
    """Return the notice of a card that was declined, and what Radar thought of it; None when it is none of this shop's.

    The session stays open: the buyer may take another card, as often as Stripe lets them.
    """
    outcome = charge.get("outcome") or {}
    is_risky = outcome.get("type") == "blocked" or outcome.get("risk_level") in HIGH_RISK
    return _notice("card_declined", charge, units=charge["amount"], event_id=event_id, is_risky=is_risky)


def refunded(charge: dict[str, Any], *, event_id: str = "") -> Notice | None:
    """Return the notice of how much of a charge was given back so far, None when it is none of this shop's."""
    return _notice("refunded", charge, units=charge["amount_refunded"], event_id=event_id)


def _notice(
    kind: Kind, what: dict[str, Any], *, units: int, event_id: str, card: str = "", is_risky: bool = False
) -> Notice | None:
    reference = (what.get("metadata") or {}).get(REFERENCE)
    if reference is None:
        return None
    currency = what["currency"].upper()
    # What we asked for has no event: it is the same fact whenever we ask.
    return Notice(
        f"{kind}:{reference}" if event_id == "" else event_id,
        kind,
        reference,
        from_units(units, currency=currency),
        currency,
        card,
        is_risky,
    )
