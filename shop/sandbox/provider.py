"""The sandbox as the shop speaks to it: begin, pay at once, refund, look up, read a notice. Takes no money.
Never touches an order: what it has to say it says like any other provider. Named by settings.PAYMENT_PROVIDERS.

Mischief (settings.SANDBOX_MISCHIEF) for tests: away = no call is answered; declines = every payment at once is
declined; twice = every notice is sent twice; late = seconds later; shuffled = the newest first; mute = only the worker
sends, the web process does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal

from django.conf import settings
from django.urls import reverse

from inventory.exceptions import InvalidRequest, Unavailable
from shop.payments.providers import Charge, Collected, Kind, Notice
from shop.sales.currencies import is_whole
from shop.sandbox import accounts, deliveries, signing


class Sandbox:
    """The built-in provider; see shop/payments/providers.py for what each call promises."""

    name = "sandbox"
    pays_at_once = True

    def check_amount(self, amount: Decimal, *, currency: str) -> None:
        """Raise InvalidRequest for an amount with more decimals than its currency."""
        if not is_whole(amount, currency=currency):
            raise InvalidRequest(f"{amount} {currency} has too many decimals")

    def begin(self, charge: Charge) -> str:
        """Open the charge and return the path of its hosted page."""
        _answer()
        accounts.open_charge(charge)
        return reverse("sandbox-pay", args=[charge.reference])

    def pay_at_once(self, charge: Charge) -> Notice:
        """Collect the charge; the caller is told at once, so no notice is sent as well (unless "twice")."""
        _answer()
        also_sent = 0.0 if "twice" in settings.SANDBOX_MISCHIEF else None
        kind: Kind = "declined" if "declines" in settings.SANDBOX_MISCHIEF else "captured"
        event = accounts.capture_new(charge, told_after_seconds=also_sent) if kind == "captured" else None
        if event is None:
            accounts.open_charge(charge)
            event, _ = accounts.record(charge.reference, kind, told_after_seconds=also_sent)
        deliveries.send_soon(event)
        return accounts.notice_of(event)

    def refund(self, reference: str) -> None:
        """Give back what was collected; a notice follows, as after every refund."""
        _answer()
        event, now = accounts.record(reference, "refunded", told_after_seconds=0.0)
        if now:
            deliveries.send_soon(event)

    def look_up(self, reference: str) -> Notice | None:
        """Return what happened last to the charge."""
        _answer()
        event = accounts.find_event(reference)
        return None if event is None else accounts.notice_of(event)

    def end(self, reference: str) -> Notice | None:
        """Return the same as look_up: its page stays open for a day, so that a late payment can be tried."""
        return self.look_up(reference)

    def collected_since(self, moment: datetime) -> Iterator[Collected]:
        """Yield what happened last to each charge since then."""
        _answer()
        for event in accounts.last_events(moment):
            yield Collected(accounts.notice_of(event), event.charge.return_url, event.charge.created_at)

    def read_notice(self, headers: Mapping[str, str], body: bytes) -> Notice:
        """Return the notice in `body`, its signature checked."""
        return signing.read_notice(headers, body, secret=settings.SANDBOX_SECRET)


def _answer() -> None:
    if "away" in settings.SANDBOX_MISCHIEF:
        raise Unavailable("the payment provider does not answer; nothing was charged")
