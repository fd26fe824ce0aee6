"""Reads sales and their stock from the database, and primes Redis with them. Never changes what is offered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import (
    Aggregate,
    BigIntegerField,
    BooleanField,
    Case,
    Count,
    F,
    Max,
    OuterRef,
    Q,
    Subquery,
    Sum,
    When,
)
from django.db.models.expressions import RawSQL
from django.db.models.functions import Greatest, Now
from django.db.models.query import QuerySet

from inventory import ledger, redis
from inventory.exceptions import SaleNotFound, SaleNotPrimed
from inventory.line import priming
from inventory.line.priming import Primed
from inventory.line.writing import live_field
from inventory.postgres import TwoKeyAdvisoryLock
from inventory.records import Record, StockFigures
from inventory.redis import keys
from inventory.states import LIVE_STATES, State
from shop.client_address import network_marks
from shop.models import InUtc, Order, Sale, SaleTerms, in_reader_language, sale_state
from shop.order_rows import record_of
from shop.tickets.keys import keeps_logs

# Longer than any transaction: a change has the moment at which its transaction began.
MAX_COMMIT = timedelta(minutes=1)
# A hold that ended longer ago is not looked for: the index keeps ended holds until a vacuum.
OVERDUE = timedelta(seconds=10)
# More than can have been admitted to a sale and be undecided: an ordinal is given once, also after a loss.
ORDINAL_JUMP = 1_000_000
# A sale stays in the list for so long after its end; then it is a past sale.
LISTED = timedelta(days=1)
PAST_PAGE = 50
# What one network may have where a sale does not say: many people share an address, and none is all of a crowd.
NETWORK_SHARE_PER_CENT = 5
MIN_NETWORK_LIMIT = 10

log = structlog.get_logger(__name__)


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


def prime_card(card: SaleCard) -> None:
    """Put `card` into Redis: its terms, its stock and, when Redis was empty, what its buyers hold (I18).

    Safe to run at any time by anyone. A retired sale is refused with SaleNotPrimed: the database answers for it.
    Raises RedisUnavailable.
    """
    _refuse_retired(card)
    client = redis.connect()
    bases = dict(Sale.objects.filter(stock__sku=card.sku, retired_at=None).values_list("pk", "ordinal_base"))
    lost = any(each is not None for each in bases.values())
    is_known = bases.get(card.sale_id) is not None and priming.has_ordinals(client, card)
    if is_known and _prime(client, card, begins=False, lost=lost) is not Primed.MUST_MOVE_ORDINALS:
        return
    # One at a time: what another process is about to write must not be taken for lost.
    with _ordinals_locked(card.sale_id):
        card, begins = _begin_ordinals(client, card)
        if _prime(client, card, begins=begins, lost=lost) is Primed.MUST_MOVE_ORDINALS:
            _prime(client, _move_ordinals(card), begins=True, lost=lost)


@contextmanager
def _ordinals_locked(sale_id: int) -> Iterator[None]:
    """Be the only one that primes this sale for the first time, or after a loss, for the length of a `with` block.

    The lock is the database connection's: what is committed within it stays when a process dies.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s, %s)", [TwoKeyAdvisoryLock.ORDINALS, sale_id])
        try:
            yield
        finally:
            if connection.is_usable():
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [TwoKeyAdvisoryLock.ORDINALS, sale_id])


def _begin_ordinals(client: redis.Client, card: SaleCard) -> tuple[SaleCard, bool]:
    """Return the sale, and whether its ordinals may begin after its base: it is new, or was moved for a Redis that lost
    them. A Redis that another process has told meanwhile knows them.
    """
    if Sale.objects.filter(pk=card.sale_id, ordinal_base=None).update(ordinal_base=0):
        return find_sale_by_id(card.sale_id), True
    if priming.has_ordinals(client, card):
        return find_sale_by_id(card.sale_id), False
    return _move_ordinals(card), True


def _prime(client: redis.Client, card: SaleCard, *, begins: bool, lost: bool) -> Primed:
    if priming.is_primed(client, card.sku):
        return _prime_stock(client, card, begins=begins, lost=lost)
    first = _fill(client, card.sku)
    with transaction.atomic(), connection.cursor() as cursor:
        # Until the stock is known nobody is told of a change: so nothing may change after the last look at it.
        ledger.lock_stock(cursor, sku=card.sku)
        card = replace(find_sale_by_id(card.sale_id), ordinal_base=card.ordinal_base)
        _refuse_retired(card)
        _fill(client, card.sku, since=first)
        return _prime_stock(client, card, begins=begins, lost=lost)


def _refuse_retired(card: SaleCard) -> None:
    if card.retired_at is not None:
        raise SaleNotPrimed("This sale is retired: only the database answers for it.")


def _prime_stock(client: redis.Client, card: SaleCard, *, begins: bool, lost: bool) -> Primed:
    versions = {
        terms.version: f"{terms.per_buyer_limit}|{terms.price}|{terms.currency}"
        for terms in SaleTerms.objects.filter(sale_id=card.sale_id)
    }
    # No index finds the last seq, and a Redis that has lost nothing knows it: then nothing is read.
    orders = Order.objects.filter(sale__stock__sku=card.sku) if begins else Order.objects.none()
    return priming.prime(
        client,
        card,
        versions=versions,
        figures=StockFigures(card.available, card.held, card.sold, card.version),
        last_seq=orders.aggregate(last=Max("seq"))["last"] or 0,
        fence=card.fence,
        begins=begins,
        grace_seconds=settings.RESTORE_GRACE_SECONDS if lost else 0,
    )


def _move_ordinals(card: SaleCard) -> SaleCard:
    """Let a sale's ordinals go on above a jump of this call's own; return the sale as it is then.

    Redis was found empty or started again, and may have lost how many it had given out. What is between the last one
    known and the jump was never given, or comes back by its ticket. Another process's jump would not do: Redis may have
    given ordinals above it, and lost them since.
    """
    last = Order.objects.filter(sale_id=card.sale_id).aggregate(last=Max("ordinal"))["last"] or 0
    with transaction.atomic():
        Sale.objects.filter(pk=card.sale_id).update(ordinal_base=Greatest("ordinal_base", last) + ORDINAL_JUMP)
        card = find_sale_by_id(card.sale_id)
    log.warning("Redis may have lost admissions: ordinals jump", action="ordinals_moved", sale=card.slug)
    return card


class _Look(NamedTuple):
    """When the orders of a SKU were read, and the oldest transaction that was under way then."""

    at: datetime
    oldest_xid: str


def _fill(client: redis.Client, sku: str, *, since: _Look | None = None) -> _Look:
    """Write what buyers hold and what was decided into an empty Redis; return the look at the database that was taken.

    since: only what that look cannot have seen; the stock's row is locked, so this must be little, however many orders
    there are. Else one snapshot for all of it: a count that knows of more than the records do would make requests look
    lost (I4).
    """
    orders = Order.objects.filter(sale__stock__sku=sku, sale__retired_at__isnull=True)
    with transaction.atomic(), connection.cursor() as cursor:
        if since is None:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SELECT clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::xid::text")
        look = _Look(*cursor.fetchone())
        changed = buyers = orders
        if since is not None:
            changed = orders.filter(_written_after(since))
            buyers = orders.filter(buyer__in=set(changed.values_list("buyer", flat=True)))
        zeros = since is not None  # they may have had some at the first look
        live = Q(state__in=LIVE_STATES)
        found: dict[str, Sequence[tuple[str, str | int]]] = {
            keys.live_units(sku): _by_buyer(buyers, Sum("quantity", filter=live, default=0), zeros=zeros),
            keys.ended_requests(sku): _by_buyer(buyers, Count("id", filter=~live), zeros=zeros),
            keys.records(sku): [(name, record.text()) for name, record in _records_of(changed.order_by("id"))],
        }
    for key, pairs in found.items():
        priming.prime_fields(client, sku, key=key, pairs=pairs)
    return look


def _written_after(look: _Look) -> Q:
    """Return the condition for orders whose row as it is now `look` cannot have seen. Not for a subquery."""
    # The moment alone would bring back all of the last minute's.
    unseen = RawSQL("age(shop_order.xmin) <= age(%s::xid)", [look.oldest_xid], output_field=BooleanField())
    return Q(changed_at__gte=look.at - MAX_COMMIT) & Q(unseen)


def _by_buyer(orders: QuerySet[Order], what: Aggregate, *, zeros: bool) -> list[tuple[str, int]]:
    """Return what orders come to, by the field of their buyer in the hashes of the SKU."""
    found = orders.order_by().values_list("sale_id", "buyer").annotate(what=what).filter(what__gte=0 if zeros else 1)
    return [(live_field(sale_id=sale_id, buyer=buyer), number) for sale_id, buyer, number in found]


def _records_of(found: QuerySet[Order]) -> Iterable[tuple[str, Record]]:
    fields = ("seq", "quantity", "sale_id", "buyer", "terms_version", "ordinal")
    for name, state, ends, *columns in found.values_list("request_id", "state", "hold_expires_at", *fields).iterator():
        yield name, record_of(State(state), *columns, ends_at=ends)


def prime_sale(slug: str) -> None:
    """Prime the sale `slug` as the database has it now. Raises SaleNotFound, RedisUnavailable."""
    prime_card(find_sale(slug))
