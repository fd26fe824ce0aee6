"""Looks for places that left a trace outside of orders and Redis, in a public log or with an e-mail address, and that
nobody knows any more; for public logs that are shorter than what was published; and for mails that would be sent a
second time. Reads only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from post_office.models import STATUS, Email

from inventory import redis
from inventory.line import repair
from inventory.redis import Client, as_dict, keys
from shop.models import Contact, Order, OrderEvent, Sale
from shop.orders.mails import NEWS, REQUEST_HEADER
from shop.payments.losses import Loss
from shop.salelog.models import SaleLog, Tile
from shop.salelog.notes import read_note
from shop.salelog.store import leaves_of

PAGE = 1_000


class Mails(NamedTuple):
    """What the mailer will send once it is started, by request; a code for an address has none, and counts as ''.

    waiting: was queued in the backup, and may have been sent since. news: of what changed after the last mail that the
    database knows of, also by what was brought back; it may have been told since.
    """

    waiting: list[str]
    news: list[str]


def find_mails() -> Mails:
    """Return the mails whose readers may have them already."""
    unsent = Email.objects.filter(status__in=(STATUS.queued, STATUS.requeued)).order_by("id")
    still_sent = unsent.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()))
    waiting = [(headers or {}).get(REQUEST_HEADER, "") for headers in still_sent.values_list("headers", flat=True)]
    untold = OrderEvent.objects.filter(
        order__request_id=OuterRef("request_id"), id__gt=OuterRef("told_event"), to_state__in=NEWS
    )
    news = Contact.objects.exclude(address="").filter(Exists(untold)).order_by("id")
    return Mails(waiting, list(news.values_list("request_id", flat=True)))


def find_traces() -> list[Loss]:
    """Return each place of a live sale that was published or has an address, and has neither order nor record.

    Its buyer's ticket brings it back. Raises RedisUnavailable.
    """
    client = redis.connect(timeout_seconds=2)
    losses: list[Loss] = []
    for sale in Sale.objects.filter(retired_at__isnull=True).select_related("stock", "log").order_by("slug"):
        log = getattr(sale, "log", None)
        if log is not None and log.is_kept:
            losses += _shorter(client, log, sku=sale.stock.sku)
            losses += _missing(client, sale, _published(log), kind="place_published", why="its public log has it")
        addresses = Contact.objects.filter(request_id__startswith=f"{sale.pk:x}-")
        names = list(addresses.values_list("request_id", flat=True))
        losses += _missing(client, sale, names, kind="place_mailed", why="its buyer left an address for news of it")
    return losses


def _published(log: SaleLog) -> list[str]:
    """Return the request of every place that a log has."""
    tiles = Tile.objects.filter(sale_id=log.sale_id, level=-1).order_by("number").values_list("data", flat=True)
    leaves = (json.loads(text) for data in tiles.iterator() for text in leaves_of(bytes(data)))
    return [leaf["request"] for leaf in leaves if leaf["kind"] == "admitted"]


def _missing(client: Client, sale: Sale, names: Sequence[str], *, kind: str, why: str) -> Iterator[Loss]:
    sku = sale.stock.sku
    for start in range(0, len(names), PAGE):
        page = names[start : start + PAGE]
        known = set(Order.objects.filter(request_id__in=page).values_list("request_id", flat=True))
        known |= set(repair.records_of(client, sku, page))
        for name in page:
            if name not in known:
                yield Loss(kind, sku, name, "", 0, f"{why}, and nobody else knows it: its ticket brings it back")


def _shorter(client: Client, log: SaleLog, *, sku: str) -> Iterator[Loss]:
    """Name a log of which more was published than the database has: it can never grow again."""
    (found,) = redis.run_commands(client, [("HGETALL", keys.checkpoints())])
    note = as_dict(found).get(str(log.sale_id))
    try:
        size = read_note(note).size if note else 0
    except ValueError as error:
        yield Loss("log_shorter", sku, log.origin, "", 0, f"its checkpoint cannot be read: {error}")
        return
    if log.size < size:
        text = f"{size} leaves were published, the database has {log.size}: buyers must be told that the log ends"
        yield Loss("log_shorter", sku, log.origin, "", 0, text)
