"""What the shop asks of a payment provider, and the providers it knows by name. Never touches an order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol

from django.conf import settings
from django.utils.module_loading import import_string
from django.utils.translation import gettext

from inventory.exceptions import InvalidRequest
from inventory.states import Reason

# card_declined: one card was, and the buyer may take another one on the same page; declined: the whole charge.
# refund_failed: money that had gone back came to us again.
Kind = Literal["captured", "declined", "refunded", "card_declined", "refund_failed"]
EVENT_NAME = re.compile(r"[!-~]{1,64}", re.ASCII)
CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
MAX_AMOUNT = Decimal(10) ** 14


@dataclass(frozen=True, slots=True)
class Charge:
    """What a provider is asked to collect. reference: ours, the same for a retry; amount in units of currency."""

    reference: str
    amount: Decimal
    currency: str
    title: str
    return_url: str  # where the buyer's browser goes afterwards, a path of this shop
    notice_url: str  # where the provider sends its notices, an absolute address
    ends_at: datetime  # when it can buy nothing any more: nobody should begin to pay it from then on


@dataclass(frozen=True, slots=True)
class Notice:
    """A provider's message about a charge, its signature checked. event_id: the provider's, the same for a repeat."""

    event_id: str
    kind: Kind
    reference: str
    amount: Decimal
    currency: str
    # The provider's fingerprint of the card, '' where it gives none.
    card: str = ""
    # Of a card that was declined: whether the provider took it for a fraud.
    is_risky: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidRequest for a field that the database could not keep: a signature does not make it right."""
        names = (self.event_id, self.reference, *([self.card] if self.card else []))
        if not all(isinstance(name, str) and EVENT_NAME.fullmatch(name) for name in names):
            raise InvalidRequest("id, reference and card must be 1 to 64 printable ASCII characters")
        if not isinstance(self.currency, str) or not CURRENCY.fullmatch(self.currency):
            raise InvalidRequest("currency must be three capital letters")
        if not self.amount.is_finite() or not 0 <= self.amount < MAX_AMOUNT:
            raise InvalidRequest("amount must be a number from 0")


@dataclass(frozen=True, slots=True)
class Collected:
    """A charge of which a provider has something to say, for a shop that has lost its own row of it."""

    notice: Notice
    return_url: str  # as the charge had it: it names the request; "" of one that was only found by its refund
    begun_at: datetime


class Provider(Protocol):
    """A payment provider. Every call has a timeout, may be repeated, and raises Unavailable when nobody answers."""

    name: str
    # Whether it may have something of a buyer that pay_at_once can collect from.
    pays_at_once: bool

    def check_amount(self, amount: Decimal, *, currency: str) -> None:
        """Raise InvalidRequest for an amount that it could never collect. Asks nobody."""

    def begin(self, charge: Charge) -> str:
        """Prepare `charge` and return the address of the page where the buyer pays."""

    def pay_at_once(self, charge: Charge) -> Notice:
        """Collect `charge` with what the buyer has stored there, without a page, and return what came of it."""

    def refund(self, reference: str) -> Reason | None:
        """Give back all that was captured, whatever it was; asked again, it is one refund.

        Return why nothing is left to give back, when the buyer got the money by another way.
        """

    def look_up(self, reference: str) -> Notice | None:
        """Return what became of a charge, None while nothing has: for notices that were lost.

        A charge that nobody paid within CHARGE_LIFE (shop/models.py) must not be captured after that.
        """

    def end(self, reference: str) -> Notice | None:
        """Let nobody begin to pay a charge from now on, if the provider can do that; return the same as look_up.

        What is captured all the same is a late payment.
        """

    def collected_since(self, moment: datetime) -> Iterator[Collected]:
        """Yield every charge begun since `moment` that was captured, declined or refunded, with its last news.

        A provider that can name others that were refunded since adds them. It may say the same twice.
        For a database that was restored from a backup; after this look_up and refund know each of them.
        """

    def read_notice(self, headers: Mapping[str, str], body: bytes) -> Notice | None:
        """Return the notice in `body`, None when it says nothing of a charge of ours.

        Raises InvalidRequest when its signature is missing, wrong or too old.
        """


def check_price(price: Decimal, *, currency: str) -> None:
    """Raise InvalidRequest for a price that some provider could never collect: nobody could pay what they are given."""
    for name in settings.PAYMENT_PROVIDERS:
        try:
            provider(name).check_amount(price, currency=currency)
        except InvalidRequest as error:
            text = gettext("Nobody could pay it: there is no such amount in %(code)s.")
            raise InvalidRequest(text % {"code": currency}) from error


def default_provider() -> str:
    """Return the name of the provider that is asked when a buyer names none."""
    return next(iter(settings.PAYMENT_PROVIDERS))


def provider(name: str) -> Provider:
    """Return the provider `name` of the setting PAYMENT_PROVIDERS. Raises InvalidRequest when there is none."""
    path = settings.PAYMENT_PROVIDERS.get(name)
    if path is None:
        raise InvalidRequest(f"there is no payment provider {name[:20]!a}")
    made: Provider = import_string(path)()
    return made
