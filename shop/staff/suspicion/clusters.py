"""Finds orders of a sale that have something in common: a network, a moment, a card, a mailbox. Gives no scores.
Never changes anything, and never shows a card, a mailbox or an address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db import connection, models
from django.utils.translation import gettext_lazy

from inventory.states import State
from shop.models import Order
from shop.orders.numbers import order_number

# Presses of one network that came so soon after one another are one burst.
BURST_MS = 10
MAX_CLUSTERS, MAX_ORDERS = 30, 200


class Kind(models.TextChoices):
    """What the orders of a cluster have in common."""

    NETWORK = "network", gettext_lazy("Same network")
    TIMING = "timing", gettext_lazy("Same network, same moment")
    CARD = "card", gettext_lazy("Same card")
    MAIL = "mail", gettext_lazy("Same mailbox")


# What each kind reads: the mark of a cluster, and its orders. least: so many buyers it takes.
NETWORK = """
SELECT network AS mark, '' AS part, id, buyer, quantity, state, seq FROM shop_order
WHERE sale_id = %(sale_id)s AND network <> ''
"""
TIMING = """
SELECT network AS mark, count(*) FILTER (WHERE is_first) OVER (PARTITION BY network ORDER BY seq, id)::text AS part,
       id, buyer, quantity, state, seq
FROM (SELECT *, coalesce(seq - lag(seq) OVER (PARTITION BY network ORDER BY seq, id) > %(burst_us)s, true) AS is_first
      FROM shop_order WHERE sale_id = %(sale_id)s AND network <> '') AS pressed
"""
CARD = """
SELECT p.card AS mark, '' AS part, o.id, o.buyer, o.quantity, o.state, o.seq
FROM shop_order o JOIN (SELECT DISTINCT order_id, card FROM shop_payment WHERE card <> '') AS p ON p.order_id = o.id
WHERE o.sale_id = %(sale_id)s
"""
# One mailbox however it is written: small letters, no dots and nothing from a plus sign on before the @.
MAIL = """
SELECT replace(split_part(split_part(lower(c.address), '@', 1), '+', 1), '.', '') || '@'
       || split_part(lower(c.address), '@', 2) AS mark, '' AS part, o.id, o.buyer, o.quantity, o.state, o.seq
FROM shop_order o JOIN shop_contact c ON c.request_id = o.request_id AND c.address <> ''
WHERE o.sale_id = %(sale_id)s
"""
CLUSTERS = """
SELECT mark, count(*), count(DISTINCT buyer), coalesce(sum(quantity) FILTER (WHERE state = 'held'), 0),
       coalesce(sum(quantity) FILTER (WHERE state = 'paid'), 0), min(seq), max(seq),
       (array_agg(id ORDER BY id))[1:%(max_orders)s]
FROM ({source}) AS each_of_it GROUP BY mark, part HAVING count(DISTINCT buyer) >= %(min_buyers)s
ORDER BY count(DISTINCT buyer) DESC, mark, min(seq) LIMIT %(limit)s
"""
SOURCES = {Kind.NETWORK: (NETWORK, 3), Kind.TIMING: (TIMING, 3), Kind.CARD: (CARD, 2), Kind.MAIL: (MAIL, 2)}


class Cluster(NamedTuple):
    """Orders with something in common. held, paid: units; span_ms: from the first press to the last.

    mark: of the network, '' for what is not shown. order_ids: MAX_ORDERS at most.
    """

    kind: Kind
    mark: str
    orders: int
    buyers: int
    held: int
    paid: int
    span_ms: float
    order_ids: Sequence[int]


class ClusterOrder(NamedTuple):
    """One order of a cluster, as its row shows it."""

    order: Order
    number: str
    can_be_voided: bool


def find_clusters(sale_id: int, kind: Kind) -> list[Cluster]:
    """Return the clusters of one kind, the one with most buyers first; MAX_CLUSTERS at most."""
    source, min_buyers = SOURCES[kind]
    values = {
        "sale_id": sale_id,
        "min_buyers": min_buyers,
        "burst_us": BURST_MS * 1000,
        "limit": MAX_CLUSTERS,
        "max_orders": MAX_ORDERS,
    }
    with connection.cursor() as cursor:
        cursor.execute(CLUSTERS.format(source=source), values)
        return [_cluster(kind, *row) for row in cursor.fetchall()]


def _cluster(
    kind: Kind, mark: str, orders: int, buyers: int, held: int, paid: int, first: int, last: int, ids: list[int]
) -> Cluster:
    if kind is Kind.MAIL:
        mark = mark.rpartition("@")[2]
    elif kind is Kind.CARD:
        mark = ""
    return Cluster(kind, mark, orders, buyers, int(held), int(paid), (last - first) / 1000, ids)


def orders_of(clusters: Sequence[Cluster]) -> dict[int, ClusterOrder]:
    """Return the orders of some clusters by id, in one query."""
    wanted = {each for cluster in clusters for each in cluster.order_ids}
    states = (State.HELD, State.PAID)
    return {
        order.pk: ClusterOrder(order, order_number(order.pk), order.state in states)
        for order in Order.objects.filter(pk__in=wanted)
    }


def unknown_networks(sale_id: int) -> int:
    """Return how many orders with units have no network: it was not known, or the time to keep it is over."""
    return Order.objects.filter(sale_id=sale_id, network="", state__in=(State.HELD, State.PAID)).count()
