"""Writes a long log of a sale that never was, by the notary's own code, and orders of some of its buyers.
Never admits or settles anybody.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from django.db import connection, transaction

from loadtest.bench.harness.fixtures import Fixture
from shop.buyers import issue_buyer
from shop.salelog import store
from shop.salelog.models import SaleLog

LEAVES_AT_ONCE = 10_000
# So many places are given, then decided, then ended, and so on; half of those who hold a unit pay.
WAVE = 100
UNITS_SHARE = 0.1
TERMS = {"version": 1, "price": "9.00", "currency": "EUR", "limit": 1, "hold_seconds": 600}
ORDER = """
INSERT INTO shop_order (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, actor, reason, unit_price,
                        currency, decided_at, changed_at, restored, terms_version, ordinal)
VALUES (%(request)s, %(sale_id)s, %(buyer)s, 1, 1, %(seq)s, 'sold_out', 'settler', '', 9, 'EUR', now(), now(), false,
        1, %(ordinal)s)
"""


def request_of(sale_id: int, ordinal: int) -> str:
    """Return the request that has this place."""
    return f"{sale_id:x}-{ordinal:022d}"


def leaves_of(sale_id: int, *, units: int, first_seq: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield leaves that keep every rule, without n and at, each after the last ordinal before it. It never ends."""
    yield 0, {"kind": "opened", "mode": "line", "units": units, "terms": TERMS}
    last, free = 0, units
    while True:
        names = [request_of(sale_id, ordinal) for ordinal in range(last + 1, last + 1 + WAVE)]
        for ordinal, name in enumerate(names, start=last + 1):
            place = {"ordinal": ordinal, "seq": first_seq + ordinal, "request": name, "holder": f"{ordinal:022d}"}
            yield ordinal, {"kind": "admitted", "quantity": 1, "terms": 1, **place}
        last += WAVE
        got, others = names[:free], names[free:]
        for name in got:
            yield last, {"kind": "decided", "request": name, "outcome": "held"}
        paid = len(got) if others else WAVE // 2
        for number, name in enumerate(got):
            end = ("paid", 0) if number < paid else ("expired", 1)
            yield last, {"kind": "ended", "request": name, "outcome": end[0], "units": end[1]}
        free -= paid
        for name in others:
            yield last, {"kind": "decided", "request": name, "outcome": "sold_out"}


def write_log(fixture: Fixture, *, leaves: int) -> int:
    """Write the log of a sale; return how many places it has."""
    now_us = time.time_ns() // 1000
    log = SaleLog.objects.create(sale_id=fixture.sale_id, origin=f"shop.example/sales/{fixture.slug}", at_us=now_us)
    units = int(leaves * UNITS_SHARE) // WAVE * WAVE or WAVE
    told = islice(leaves_of(fixture.sale_id, units=units, first_seq=now_us - leaves), leaves)
    while chunk := list(islice(told, LEAVES_AT_ONCE)):
        state = store.state_of(log)
        state.ordinals, state.leaves = (list(each) for each in zip(*chunk, strict=True))
        state.is_open, state.ordinal, state.seq = True, state.ordinals[-1], now_us
        with transaction.atomic(), connection.cursor() as cursor:
            store.append(cursor, log, state, at_us=now_us)
        log.ordinal = state.ordinal
    return log.ordinal


def write_orders(fixture: Fixture, *, ordinals: Sequence[int]) -> list[tuple[str, str]]:
    """Write an order for each of these places; return the request of each, and the token of its buyer."""
    found = []
    with transaction.atomic(), connection.cursor() as cursor:
        for ordinal in ordinals:
            (buyer, token), request = issue_buyer(), request_of(fixture.sale_id, ordinal)
            values: dict[str, Any] = {"request": request, "buyer": buyer, "ordinal": ordinal, "seq": ordinal}
            cursor.execute(ORDER, values | {"sale_id": fixture.sale_id})
            found.append((request, token))
    return found
