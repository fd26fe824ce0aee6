"""Begins the logs of sales, and reads of a sale what its log says of it. Inside the notary's transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import F, Q

from inventory.line.priming import microseconds
from inventory.postgres import Cursor
from shop.models import Sale, SaleTerms
from shop.salelog.changes import Change
from shop.salelog.models import LineEvent, SaleLog
from shop.salelog.publisher import SaleFacts

# A settler says that a sale's time is over a moment after it has read the clock that its decisions carry.
CLOSING_SLACK_US = 1_000_000
# A log begins before its sale's first event, or else after the last of its SKU.
BEGINS_AFTER = """
SELECT coalesce(
    least((SELECT min(e.id)
           FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id WHERE o.sale_id = %(sale_id)s),
          (SELECT min(number) FROM salelog_lineevent WHERE number > %(read_to)s AND sale_id = %(sale_id)s)) - 1,
    greatest((SELECT max(e.id)
              FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id JOIN shop_sale s ON s.id = o.sale_id
              WHERE e.id > %(read_to)s AND s.stock_id = %(stock_id)s),
             (SELECT max(number) FROM salelog_lineevent WHERE number > %(read_to)s AND stock_id = %(stock_id)s),
             %(read_to)s))
"""
# By how much the free units of a SKU changed after an event; movements and history agree on it (I5).
CHANGED_SINCE = """
SELECT coalesce((SELECT sum(CASE WHEN e.to_state = 'held' OR (e.from_state, e.to_state) = ('expired', 'paid')
                                 THEN -o.quantity
                                 WHEN (e.from_state = 'held' AND e.to_state IN ('expired', 'cancelled'))
                                      OR (e.from_state, e.to_state) = ('paid', 'refunded') THEN o.quantity ELSE 0 END)
                 FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id JOIN shop_sale s ON s.id = o.sale_id
                 WHERE e.id > %(after)s AND s.stock_id = %(stock_id)s), 0)
       + coalesce((SELECT sum(change) FROM salelog_lineevent WHERE number > %(after)s AND stock_id = %(stock_id)s), 0)
"""


def origin_of(slug: str) -> str:
    """Return the name of a sale's log."""
    return f"{urlsplit(settings.PUBLIC_URL).netloc or 'localhost'}/sales/{slug}"


def begin_logs(cursor: Cursor, *, read_to: int) -> int:
    """Begin the log of each sale that has none; return from where events must be read. read_to: up to here all are.

    However far reading is behind, a log opens with the units that its sale began with. In one snapshot, so that the
    free units of that moment, less what has changed since an event, are those at it. A sale that was retired while no
    notary worked has events that nobody has read; of one that was retired before there were logs all were.
    """
    without = Sale.objects.filter(log=None).select_related("stock")
    # Three queries, for with one or two PostgreSQL may read all sales that there ever were.
    unread = set(LineEvent.objects.filter(number__gt=read_to, sale__isnull=False).values_list("sale_id", flat=True))
    retired = without.filter(pk__in=unread, retired_at__isnull=False, buyers_forgotten_at=None)
    for sale in chain(without.filter(retired_at=None), retired):
        values = {"read_to": read_to, "sale_id": sale.pk, "stock_id": sale.stock_id}
        after = _number(cursor, BEGINS_AFTER, values)
        changed = _number(cursor, CHANGED_SINCE, values | {"after": after})
        log = SaleLog(sale=sale, origin=origin_of(sale.slug), cursor=after, units=sale.stock.available - changed)
        SaleLog.objects.bulk_create([log])
        read_to = min(read_to, after)
    return read_to


def _number(cursor: Cursor, query: str, values: Mapping[str, int]) -> int:
    cursor.execute(query, values)
    (found,) = cursor.fetchone()
    return int(found)


def count_elsewhere(changes: Sequence[Change], *, sale_ids: Collection[int]) -> None:
    """Count `changes` for the finished logs of their SKUs, as units that came or went for other sales.

    A log is finished once its sale is closed and retired, with every ordinal published: only a change of its own adds
    to it. One statement counts for all those of a SKU, so that past sales cost nothing. sale_ids: not for these.
    """
    finished = SaleLog.objects.filter(
        Q(sale__ordinal_base=None) | Q(sale__ordinal_base__lte=F("ordinal")),
        is_kept=True,
        is_closed=True,
        sale__retired_at__isnull=False,
    ).exclude(sale__in=sale_ids)
    stock_ids = {each.stock_id for each in changes}
    found = finished.filter(sale__stock__in=stock_ids).order_by().values_list("sale__stock_id", "cursor").distinct()
    for stock_id, cursor in found:
        new = [each for each in changes if each.stock_id == stock_id and each.number > cursor]
        if new:
            units = sum(each.units for each in new)
            logs = finished.filter(sale__stock=stock_id, cursor=cursor)
            logs.update(units=F("units") + units, cursor=new[-1].number)


def logs_to_grow(changes: Sequence[Change], *, sale_ids: Collection[int]) -> list[SaleLog]:
    """Return the logs of these sales, and of the SKUs of `changes` where those are not counted in them."""
    wanted = Q(sale__in=sale_ids)
    for stock_id, last in {each.stock_id: each.number for each in changes}.items():
        wanted |= Q(sale__stock=stock_id, cursor__lt=last)
    return list(SaleLog.objects.filter(wanted, is_kept=True).select_related("sale").order_by("sale_id"))


def facts_of(sale: Sale, *, now: datetime) -> SaleFacts:
    """Return what the log says of a sale. now: by the database's clock."""
    terms = {
        each.version: {
            "version": each.version,
            "price": str(each.price),
            "currency": each.currency,
            "limit": each.per_buyer_limit,
            "hold_seconds": each.hold_seconds,
        }
        for each in SaleTerms.objects.filter(sale=sale)
    }
    slack_us = 0 if sale.operator_state == Sale.OperatorState.CLOSED else CLOSING_SLACK_US
    return SaleFacts(
        sale_id=sale.pk,
        key=sale.request_key.encode(),
        is_begun=sale.opens_at <= now,
        is_over=sale.state_at(now) == "closed",
        closes_us=microseconds(sale.closes_at) - slack_us,
        version=sale.terms_version,
        terms=terms,
    )
