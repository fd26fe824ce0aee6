"""Primes Redis with a sale as the database has it: its terms, its stock, what its buyers hold and what became of them.
Never changes what is offered, and never lets an ordinal be given twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Aggregate, BooleanField, Count, Max, Q, Sum
from django.db.models.expressions import RawSQL
from django.db.models.functions import Greatest, Now
from django.db.models.query import QuerySet

from inventory import ledger, redis
from inventory.exceptions import SaleNotPrimed
from inventory.line import priming as line_priming
from inventory.line import writing
from inventory.line.priming import Primed
from inventory.postgres import TwoKeyAdvisoryLock
from inventory.records import Record, StockFigures
from inventory.redis import keys
from inventory.states import LIVE_STATES, State
from shop.models import Order, Sale, SaleTerms
from shop.order_rows import record_of
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard

# Longer than any transaction: a change has the moment at which its transaction began.
MAX_COMMIT = timedelta(minutes=1)
# More than can have been admitted to a sale and be undecided: an ordinal is given once, also after a loss.
ORDINAL_JUMP = 1_000_000
# What a Redis that may have lost its last writes is told: so many orders at most, those that changed last. Asks wait
# for it; what is older the reconciler finds.
MAX_TOLD, LATELY = 5_000, timedelta(hours=1)

log = structlog.get_logger(__name__)


def prime_sale(slug: str) -> None:
    """Prime the sale `slug` as the database has it now, unless it is retired. Raises SaleNotFound, RedisUnavailable."""
    with suppress(SaleNotPrimed):  # retired, maybe at this moment
        prime_card(catalogue.find_sale(slug))


def prime_card(card: SaleCard) -> None:
    """Put `card` into Redis: its terms, its stock and, when Redis was empty, what its buyers hold (I18).

    A Redis that was started again is also told what became of the newest orders: it may have lost that.

    Safe to run at any time by anyone. A retired sale is refused with SaleNotPrimed: the database answers for it.
    Raises RedisUnavailable.
    """
    _refuse_retired(card)
    client = redis.connect()
    bases = dict(Sale.objects.filter(stock__sku=card.sku, retired_at=None).values_list("pk", "ordinal_base"))
    lost = any(each is not None for each in bases.values())
    is_known = bases.get(card.sale_id) is not None and line_priming.has_ordinals(client, card)
    if is_known and _prime(client, card, begins=False, lost=lost) is not Primed.MUST_MOVE_ORDINALS:
        return
    # One at a time: what another process is about to write must not be taken for lost.
    with _ordinals_locked(card.sku):
        card, begins = _begin_ordinals(client, card)
        _refuse_retired(card)
        if _prime(client, card, begins=begins, lost=lost) is Primed.MUST_MOVE_ORDINALS:
            _prime(client, _move_ordinals(card), begins=True, lost=lost)


@contextmanager
def _ordinals_locked(sku: str) -> Iterator[None]:
    """Be the only one that primes a sale of `sku` that is new, or after a loss, for the length of a `with` block.

    Of the SKU, as two sales of one fill the same hashes: an old look must not go over a newer one. The lock is the
    database connection's: what is committed within it stays when a process dies.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [TwoKeyAdvisoryLock.ORDINALS, sku])
        try:
            yield
        finally:
            if connection.is_usable():
                cursor.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [TwoKeyAdvisoryLock.ORDINALS, sku])


def _begin_ordinals(client: redis.Client, card: SaleCard) -> tuple[SaleCard, bool]:
    """Return the sale, and whether its ordinals may begin after its base: it is new, or was moved for a Redis that lost
    them. A Redis that another process has told meanwhile knows them. Raises RedisUnavailable, and changes nothing then.
    """
    # Asked before the base is written: a sale that is made while Redis is away stays new, and has lost nothing.
    known = line_priming.has_ordinals(client, card)
    if Sale.objects.filter(pk=card.sale_id, ordinal_base=None).update(ordinal_base=0):
        return catalogue.find_sale_by_id(card.sale_id), True
    if known:
        return catalogue.find_sale_by_id(card.sale_id), False
    return _move_ordinals(card), True


def _prime(client: redis.Client, card: SaleCard, *, begins: bool, lost: bool) -> Primed:
    if line_priming.is_primed(client, card.sku):
        if begins:
            _tell_latest(client, card.sku)
        return _prime_stock(client, card, begins=begins, lost=lost, last_seq=_last_seq(card.sku) if begins else 0)
    first = _fill(client, card.sku)
    last_seq = _last_seq(card.sku) if begins else 0
    with transaction.atomic(), connection.cursor() as cursor:
        # Until the stock is known nobody is told of a change: so nothing may change after the last look at it.
        ledger.lock_stock(cursor, sku=card.sku)
        card = replace(catalogue.find_sale_by_id(card.sale_id), ordinal_base=card.ordinal_base)
        _refuse_retired(card)
        _fill(client, card.sku, since=first)
        last_seq = max(last_seq, _last_seq(card.sku, since=first)) if begins else 0
        return _prime_stock(client, card, begins=begins, lost=lost, last_seq=last_seq)


def _last_seq(sku: str, *, since: _Look | None = None) -> int:
    """Return the highest seq of a SKU's orders. since: without sales that were retired at that look: they get no more.

    No index finds it, and a Redis that has lost nothing knows it: so it is read only when ordinals begin.
    """
    orders = Order.objects.filter(sale__stock__sku=sku)
    if since is not None:
        orders = orders.filter(Q(sale__retired_at=None) | Q(sale__retired_at__gte=since.at - MAX_COMMIT))
    return int(orders.aggregate(last=Max("seq"))["last"] or 0)


def _tell_latest(client: redis.Client, sku: str) -> None:
    """Let no buyer be answered from a record that is older than what the buyer was told (I19)."""
    orders = Order.objects.filter(sale__stock__sku=sku, sale__retired_at=None, changed_at__gte=Now() - LATELY)
    told = [writing.Settled(*each) for each in _records_of(orders.order_by("-changed_at")[:MAX_TOLD])]
    # Nothing of the stock: the priming brings it, or the settlement of what is in flight.
    writing.publish_changes(client, sku, figures=StockFigures(0, 0, 0, 0), changed=told)


def _refuse_retired(card: SaleCard) -> None:
    if card.retired_at is not None:
        raise SaleNotPrimed("This sale is retired: only the database answers for it.")


def _prime_stock(client: redis.Client, card: SaleCard, *, begins: bool, lost: bool, last_seq: int) -> Primed:
    versions = {}
    for terms in SaleTerms.objects.filter(sale_id=card.sale_id):
        versions[f"{terms.version}"] = f"{terms.per_buyer_limit}|{terms.price}|{terms.currency}"
        # A field of its own: web processes from before it go on reading the other.
        versions[f"{terms.version}:hold"] = f"{terms.hold_seconds}"
    return line_priming.prime(
        client,
        card,
        versions=versions,
        figures=StockFigures(card.available, card.held, card.sold, card.version),
        last_seq=last_seq,
        fence=card.fence,
        begins=begins,
        grace_seconds=settings.RESTORE_GRACE_SECONDS if lost else 0,
    )


def _move_ordinals(card: SaleCard) -> SaleCard:
    """Let a sale's ordinals go on above a jump of this call's own; return the sale as it is then.

    Redis was found empty or started again, and may have lost how many it had given out. What is between the last one
    known and the jump was never given, or comes back by its ticket. Another process's jump would not do: Redis may have
    given ordinals above it, and lost them since. Those of a retired sale stay: its public log ended with them.
    """
    last = Order.objects.filter(sale_id=card.sale_id).aggregate(last=Max("ordinal"))["last"] or 0
    with transaction.atomic():
        jump = Greatest("ordinal_base", last) + ORDINAL_JUMP
        Sale.objects.filter(pk=card.sale_id, retired_at=None).update(ordinal_base=jump)
        card = catalogue.find_sale_by_id(card.sale_id)
    _refuse_retired(card)
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
            # In no order: for the first rows of a cursor PostgreSQL would walk all orders of the shop by their key.
            keys.records(sku): [(name, record.text()) for name, record in _records_of(changed.order_by())],
        }
    for key, pairs in found.items():
        line_priming.prime_fields(client, sku, key=key, pairs=pairs)
    return look


def _written_after(look: _Look) -> Q:
    """Return the condition for orders whose row as it is now `look` cannot have seen. Not for a subquery."""
    # The moment alone would bring back all of the last minute's.
    unseen = RawSQL("age(shop_order.xmin) <= age(%s::xid)", [look.oldest_xid], output_field=BooleanField())
    return Q(changed_at__gte=look.at - MAX_COMMIT) & Q(unseen)


def _by_buyer(orders: QuerySet[Order], what: Aggregate, *, zeros: bool) -> list[tuple[str, int]]:
    """Return what orders come to, by the field of their buyer in the hashes of the SKU."""
    found = orders.order_by().values_list("sale_id", "buyer").annotate(what=what).filter(what__gte=0 if zeros else 1)
    return [(writing.live_field(sale_id=sale_id, buyer=buyer), number) for sale_id, buyer, number in found]


def _records_of(found: QuerySet[Order]) -> Iterable[tuple[str, Record]]:
    fields = ("seq", "quantity", "sale_id", "buyer", "terms_version", "ordinal")
    for name, state, ends, *columns in found.values_list("request_id", "state", "hold_expires_at", *fields).iterator():
        yield name, record_of(State(state), *columns, ends_at=ends)
