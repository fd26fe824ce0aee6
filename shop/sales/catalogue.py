"""Reads sales and their stock from the database, as one moment saw them. Never changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import BigIntegerField, Case, F, OuterRef, Q, Subquery, When
from django.db.models.functions import Now
from django.db.models.query import QuerySet

from inventory.exceptions import SaleNotFound
from inventory.line import priming
from inventory.states import State
from shop.client_address import network_marks
from shop.models import InUtc, Order, Sale, SaleTerms, in_reader_language, sale_state
from shop.tickets.keys import keeps_logs
from shop.tickets.signing import holder_of

# A hold that ended longer ago is not looked for: the index keeps ended holds until a vacuum.
OVERDUE = timedelta(seconds=10)
# A sale stays in the list for so long after its end; then it is a past sale.
LISTED = timedelta(days=1)
PAST_PAGE = 50
# What one network may have where a sale does not say: many people share an address, and none is all of a crowd.
NETWORK_SHARE_PER_CENT = 5
MIN_NETWORK_LIMIT = 10


@dataclass(frozen=True, slots=True)
class SaleCard(priming.SaleTerms):
    """A sale with its product and its stock, as one moment saw it. price in units of currency, quantity in units."""

    slug: str
    title: str
    tagline: str
    description: str
    picture: str
    price: Decimal
    list_price: Decimal
    currency: str
    hold_seconds: int
    pause_reason: str
    request_key: str
    quantity: int
    available: int
    held: int
    sold: int
    version: int
    fence: int
    # When the first of its holds ends, None when nothing is held; by the card's moment.
    next_lapse_at: datetime | None = None
    retired_at: datetime | None = None
    per_network_limit: int | None = None
    # For readers of Chinese; '' where there is no such text.
    title_zh: str = ""
    tagline_zh: str = ""
    description_zh: str = ""
    ships: bool = False
    pass_mode: str = Sale.PassMode.NEVER.value
    pass_rush: int = 50
    codes_required: bool = False
    email_mode: str = Sale.EmailMode.NEVER.value
    revoked_networks: str = ""
    email_list: str = ""
    public_at: datetime | None = None

    def is_public(self, moment: datetime) -> bool:
        """Say whether it was limited to a list or to codes until now, and is everybody's as of `moment`."""
        return self.public_at is not None and moment >= self.public_at

    def is_presale(self, moment: datetime) -> bool:
        """Say whether a list or codes let in sooner, and it is not everybody's yet as of `moment`."""
        return self.public_at is not None and moment < self.public_at

    @property
    def public_us(self) -> int:
        """The moment from which it is everybody's, as its line has it."""
        return priming.microseconds(self.public_at) if self.public_at else 0

    def revokes(self, network: str, *, mark: str) -> bool:
        """Say whether staff revoked `network`, or the one to which the token was given. mark: of that one, or ''."""
        revoked = self.revoked_networks.split()
        return bool(revoked) and (mark in revoked or not network_marks(network).isdisjoint(revoked))

    @property
    def network_limit(self) -> int:
        """For how many units one network is let in; 0: for any number."""
        if self.per_network_limit is not None:
            return self.per_network_limit
        return max(MIN_NETWORK_LIMIT, self.per_buyer_limit, self.quantity * NETWORK_SHARE_PER_CENT // 100)

    @property
    def shown_title(self) -> str:
        """The title in the language that is active; so are the next two."""
        return in_reader_language(self.title, self.title_zh)

    @property
    def shown_tagline(self) -> str:
        return in_reader_language(self.tagline, self.tagline_zh)

    @property
    def shown_description(self) -> str:
        return in_reader_language(self.description, self.description_zh)

    def state_at(self, moment: datetime) -> str:
        """Return scheduled, open, paused or closed as of `moment` (an aware datetime)."""
        return sale_state(self.operator_state, opens=self.opens_at, closes=self.closes_at, moment=moment)

    def is_listed(self, moment: datetime) -> bool:
        """Say whether the list of sales has it as of `moment`: open, coming, or over for less than a day."""
        return self.retired_at is None and self.closes_at > moment - LISTED

    def request_id_key(self) -> bytes:
        """Return the key of this sale's request ids."""
        return self.request_key.encode()

    @property
    def log_kept_as(self) -> str:
        """Under which name a browser keeps how far it has seen this sale's log.

        A shop whose data were emptied, as each run of the demo begins, has other logs under the old names; under a
        derived key nothing but this tells them apart.
        """
        return holder_of(self.request_id_key(), "") if settings.LOG_KEY_IS_DERIVED else self.slug


# What a card has of other rows than its sale's.
OF_OTHER_ROWS = {
    "sku": "stock__sku",
    "quantity": "stock__total",
    "available": "stock__available",
    "held": "stock__held",
    "sold": "stock__sold",
    "version": "stock__version",
    "fence": "stock__fence",
    "tagline": "product__tagline",
    "description": "product__description",
    "tagline_zh": "product__tagline_zh",
    "description_zh": "product__description_zh",
    "picture": "product__picture",
    "list_price": "product__list_price",
}
CARD_FIELDS = [field.name for field in fields(SaleCard)]


def _sales() -> QuerySet[Sale, dict[str, Any]]:
    """Return the columns of the cards of all sales."""
    # In the terms of the index order_held_by_sale_and_end: the holds of other sales are not read.
    holds = Order.objects.filter(sale=OuterRef("pk"), state=State.HELD).alias(end=InUtc("hold_expires_at"))
    holds = holds.filter(end__gte=InUtc(Now() - OVERDUE)).order_by("end")
    first_end = Subquery(holds.values("hold_expires_at")[:1])
    # Without the condition a sale with nothing held would read the index of all holds.
    next_lapse_at = Case(When(stock__held__gt=0, closes_at__gt=Now(), then=first_end))
    of_others = {name: F(path) for name, path in OF_OTHER_ROWS.items()}
    sales = Sale.objects.annotate(sale_id=F("pk"), next_lapse_at=next_lapse_at, **of_others)
    cards: QuerySet[Sale, dict[str, Any]] = sales.values(*CARD_FIELDS)
    return cards


def list_sales() -> list[SaleCard]:
    """Return every sale that is not retired, the one that opens first first."""
    return _read(*_statement(retired_at__isnull=True))


def _read(statement: str, parameters: Sequence[Any]) -> list[SaleCard]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [SaleCard(**dict(zip(CARD_FIELDS, row, strict=True))) for row in cursor.fetchall()]


@cache
def _statement(**condition: Any) -> tuple[str, tuple[Any, ...]]:
    # Every web process lists the sales once a second, and most pages look one up: building the statement takes ten
    # times as long as the rest.
    return _sales().filter(**condition).query.sql_with_params()


def list_past(page: int) -> tuple[list[SaleCard], bool]:
    """Return one page (from 1) of the sales that are listed no more, the last one first, and whether more follow."""
    past = _sales().filter(Q(retired_at__isnull=False) | Q(closes_at__lte=Now() - LISTED))
    start = (page - 1) * PAST_PAGE
    found = [SaleCard(**row) for row in past.order_by("-closes_at", "-pk")[start : start + PAST_PAGE + 1]]
    return found[:PAST_PAGE], len(found) > PAST_PAGE


def find_sale(slug: str) -> SaleCard:
    """Return the sale `slug`, retired or not. Raises SaleNotFound."""
    return _find(_statement(slug=""), slug)


def find_sale_by_id(sale_id: int) -> SaleCard:
    """Return the sale with this id, retired or not. Raises SaleNotFound, also for a number that no id can be."""
    if not 0 < sale_id <= BigIntegerField.MAX_BIGINT:
        raise SaleNotFound
    return _find(_statement(pk=0), sale_id)


def _find(prepared: tuple[str, tuple[Any, ...]], wanted: int | str) -> SaleCard:
    statement, (*parameters, _) = prepared  # the condition's is the last one
    for card in _read(statement, [*parameters, wanted]):
        return card
    raise SaleNotFound


def as_promised(card: SaleCard, *, version: int) -> SaleCard:
    """Return a sale with the terms that a request was promised; version: of these, 0 when it is not known."""
    if version in (0, card.terms_version):
        return card
    terms = SaleTerms.objects.filter(sale_id=card.sale_id, version=version)
    promised = terms.values("price", "currency", "per_buyer_limit", "hold_seconds").first()
    return replace(card, **promised) if promised else card


def places_in_log(sale_id: int) -> tuple[int, list[list[int]]] | None:
    """Return how many places the public log of a sale has, and which ordinals it declares lost, as [first, last].

    None when the shop or the sale keeps no log.
    """
    if not keeps_logs():
        return None
    row = Sale.objects.filter(pk=sale_id).values_list("log__is_kept", "log__ordinal", "log__lost").first()
    if row is None or row[0] is False:
        return None
    lost = row[2] or []
    return (row[1] or 0) - sum(last - first + 1 for first, last in lost), lost
