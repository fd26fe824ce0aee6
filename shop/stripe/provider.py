"""Stripe as the shop speaks to it: begin at Checkout's page, end, look up, refund, read an event. See
shop/payments/providers.py for what each call promises. Named by settings.PAYMENT_PROVIDERS.
Never sees an order, never holds a row or a transaction while it waits for the network.

Cards only: other ways to pay may capture days later, and money that comes later than a day is never looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import urljoin
from zlib import crc32

import stripe
import structlog
from django.db.models import F

from inventory.exceptions import InvalidRequest, NotPayable
from inventory.states import Reason
from shop.payments.providers import Charge, Collected, Notice
from shop.stripe.amounts import to_units
from shop.stripe.calls import stripe_client
from shop.stripe.events import PAID, REFERENCE, captured, read_event, refunded
from shop.stripe.models import CheckoutSession

if TYPE_CHECKING:
    from stripe.params.checkout import SessionCreateParams, SessionListParams

log = structlog.get_logger(__name__)

# A session lives for half an hour at least, and must be begun before the hold's end: so it outlives every hold. The
# payments worker ends it; this end is for when no worker runs. The rest is for clocks that differ.
OUTLIVES_HOLD = timedelta(minutes=32)


class Stripe:
    """Stripe Checkout. Each payment has one session, however often it is begun."""

    name = "stripe"
    pays_at_once = False

    def check_amount(self, amount: Decimal, *, currency: str) -> None:
        """Raise InvalidRequest for an amount that Stripe's numbers cannot say."""
        to_units(amount, currency=currency)

    def begin(self, charge: Charge) -> str:
        """Return the address of the session's page, or of the ticket when nothing is left to be paid there.

        Raises NotPayable when the hold ended meanwhile, and what stripe_client raises.
        """
        wish = session_of(charge)
        kept, _ = CheckoutSession.objects.get_or_create(reference=charge.reference)
        with stripe_client() as client:
            if kept.session_id:
                return _page_of(client.v1.checkout.sessions.retrieve(kept.session_id)) or charge.return_url
            # The same key, the same session: also when an answer was lost, or two presses come at once. In another
            # language it is another wish, with a key of its own: of two sessions one is kept and handed out.
            with _another_key_after_failure(kept):
                key = f"{charge.reference}-{kept.tries}-{crc32(charge.title.encode()):x}"
                session = client.v1.checkout.sessions.create(wish, {"idempotency_key": key})
            if not _keep(charge.reference, session.id):
                with suppress(stripe.InvalidRequestError):  # it has ended already
                    client.v1.checkout.sessions.expire(session.id)
                if not (other := _session_id(charge.reference)):
                    raise NotPayable("the time to pay is over; nothing was taken from you")
                session = client.v1.checkout.sessions.retrieve(other)
        return _page_of(session) or charge.return_url

    def pay_at_once(self, charge: Charge) -> Notice:
        """Raise InvalidRequest: buyers have nothing stored there."""
        raise InvalidRequest("Stripe collects on its page only")

    def refund(self, reference: str) -> Reason | None:
        """Give back what was captured and not given back yet; return why not, if the buyer's bank has taken it.

        Raises InvalidRequest when Stripe cannot.
        """
        kept = CheckoutSession.objects.filter(reference=reference).exclude(session_id="").first()
        if kept is None:
            raise InvalidRequest("there is no session of this payment")
        with stripe_client() as client, _another_key_after_failure(kept):
            session = client.v1.checkout.sessions.retrieve(kept.session_id).to_dict()
            if session["payment_status"] not in PAID:
                raise InvalidRequest("nothing was collected for this payment")
            intent = session.get("payment_intent")
            if intent is None:
                return None  # a price of 0
            try:
                key = f"refund-{reference}-{kept.tries}"
                made = client.v1.refunds.create(
                    {"payment_intent": intent, "metadata": {REFERENCE: reference}}, {"idempotency_key": key}
                )
            except stripe.InvalidRequestError as error:
                # Keys are forgotten after a day; a refund is not.
                if error.code == "charge_disputed":
                    # The bank decides over this money: Stripe never lets us give it back, so asking again ends nothing.
                    log.error("the buyer's bank has taken this money", action="refund_disputed", reference=reference)
                    return Reason.TAKEN_BY_BANK
                if error.code != "charge_already_refunded":
                    raise
                return None
        if made.status in ("failed", "canceled"):
            raise InvalidRequest(f"Stripe could not give the money back: {made.id} is {made.status}")
        return None

    def look_up(self, reference: str) -> Notice | None:
        """Return whether the session was paid, or given back since."""
        session_id = _session_id(reference)
        if not session_id:
            return None  # nobody was given the address of a page
        with stripe_client() as client:
            try:
                found = client.v1.checkout.sessions.retrieve(session_id, {"expand": ["payment_intent.latest_charge"]})
            except stripe.InvalidRequestError as error:
                if error.code != "resource_missing":
                    raise
                # Begun with another key, such as one for tests: this one will never hear of it.
                log.warning("Stripe knows no such session", action="stripe_unknown_session", reference=reference)
                return None
        session = found.to_dict()
        charge = (session.get("payment_intent") or {}).get("latest_charge") or {}
        return refunded(charge) if charge.get("refunded") else captured(session)

    def end(self, reference: str) -> Notice | None:
        """End the session at Stripe; one that was paid, or is over, stays as it is."""
        CheckoutSession.objects.get_or_create(reference=reference)
        # Either this or _keep changes the row first. If this does, begin() ends the new session itself.
        if CheckoutSession.objects.filter(reference=reference, session_id="").update(is_ended=True):
            return None
        with stripe_client() as client:
            try:
                client.v1.checkout.sessions.expire(_session_id(reference))
            except stripe.InvalidRequestError:
                return self.look_up(reference)
        return None

    def collected_since(self, moment: datetime) -> Iterator[Collected]:
        """Yield each session of ours that was paid, or given back since; its name is kept again.

        Then each charge that was given back since, however long ago its session was begun.
        """
        wish: SessionListParams = {
            "created": {"gte": int(moment.timestamp())},
            "limit": 100,
            "expand": ["data.payment_intent.latest_charge"],
        }
        with stripe_client() as client:
            found = client.v1.checkout.sessions.list(wish)
            for each in found.auto_paging_iter():
                session = each.to_dict()
                charge = (session.get("payment_intent") or {}).get("latest_charge") or {}
                notice = refunded(charge) if charge.get("refunded") else captured(session)
                if notice is not None:
                    CheckoutSession.objects.get_or_create(reference=notice.reference)
                    _keep(notice.reference, session["id"])
                    yield Collected(notice, session["success_url"], datetime.fromtimestamp(session["created"], UTC))
            yield from _refunded_since(client, moment)

    def read_notice(self, headers: Mapping[str, str], body: bytes) -> Notice | None:
        """Return the notice in an event that Stripe signed."""
        return read_event(headers, body)


def session_of(charge: Charge) -> SessionCreateParams:
    """Return what is asked of Stripe for `charge`: the same for each try, or its idempotency key would be refused.

    Another title has another key. Raises InvalidRequest for an amount that Stripe cannot collect.
    """
    ticket = urljoin(charge.notice_url, charge.return_url)
    named = {REFERENCE: charge.reference}
    units = to_units(charge.amount, currency=charge.currency)
    return {
        "mode": "payment",
        "allowed_payment_method_types": ["card"],
        "adaptive_pricing": {"enabled": False},  # the amount is the order's own, in its own currency
        "line_items": [
            {
                "quantity": 1,
                "price_data": {
                    "currency": charge.currency.lower(),
                    "unit_amount": units,
                    "product_data": {"name": charge.title},
                },
            }
        ],
        "client_reference_id": charge.reference,
        "metadata": named,
        "payment_intent_data": {"metadata": named},
        "expires_at": int((charge.ends_at + OUTLIVES_HOLD).timestamp()),
        "success_url": ticket,
        "cancel_url": ticket,
    }


def _refunded_since(client: stripe.StripeClient, moment: datetime) -> Iterator[Collected]:
    since = int(moment.timestamp())
    found = client.v1.refunds.list({"created": {"gte": since}, "limit": 100, "expand": ["data.charge"]})
    for each in found.auto_paging_iter():
        charge = each.to_dict()["charge"] or {}
        if charge.get("refunded") and (notice := refunded(charge)) is not None:
            yield Collected(notice, "", datetime.fromtimestamp(charge["created"], UTC))


def _page_of(session: stripe.checkout.Session) -> str:
    """Return the address of a session's page, '' once it is over."""
    return session.to_dict().get("url") or ""


def _session_id(reference: str) -> str:
    return CheckoutSession.objects.filter(reference=reference).values_list("session_id", flat=True).first() or ""


def _keep(reference: str, session_id: str) -> bool:
    """Keep Stripe's name of a session before anybody gets its address.

    False when the hold ended before, or another session is kept: two must never be handed out for one payment.
    """
    free = CheckoutSession.objects.filter(reference=reference, is_ended=False, session_id__in=("", session_id))
    return bool(free.update(session_id=session_id))


@contextmanager
def _another_key_after_failure(kept: CheckoutSession) -> Iterator[None]:
    """Let the next try use another idempotency key if Stripe failed, or was asked for something else by this one.

    Never after a lost answer: the same key finds what was made.
    """
    try:
        yield
    except stripe.StripeError as error:
        if isinstance(error, stripe.IdempotencyError) or (error.http_status or 0) >= 500:
            CheckoutSession.objects.filter(pk=kept.pk, tries=kept.tries).update(tries=F("tries") + 1)
        raise
