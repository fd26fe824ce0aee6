"""Lets a notary publish, and judges a sale's log as a stranger does, through the shop's own addresses. No process."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection
from django.test import Client

from inventory import redis
from loadtest.verify.verify_sale import Verifier
from shop.salelog.models import SaleLog
from shop.sales.catalogue import SaleCard
from tests.support.waiting import wait_until
from workers.notary import Notary

OPEN_TRANSACTIONS = """
SELECT pid, datname, state, left(query, 200) FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
"""


def publish(notary: Notary | None = None, *, is_held_back: bool = False) -> Notary:
    """Let a notary publish until there is nothing to publish; return it.

    is_held_back: do not wait until other transactions have ended. What is open anywhere on the server, as PostgreSQL's
    own care for its tables, holds reading back: steps would read again what they have read.
    """
    notary = notary or Notary(redis.connect())
    still = 0
    while still < 3:  # a step may read much that belongs to no log, and notes one step later how far it has come
        if not is_held_back:
            wait_until(lambda: not open_transactions(), what=lambda: f"the end of {open_transactions()}")
        before = read_to()
        still = 0 if notary.work_once() or read_to() != before else still + 1
    return notary


def open_transactions() -> list[tuple[Any, ...]]:
    """Return the transactions of others that have written something: (process, database, state, statement)."""
    with connection.cursor() as cursor:
        cursor.execute(OPEN_TRANSACTIONS)
        return cursor.fetchall()


def read_to() -> int:
    """Return up to which number everything was read."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT read_to FROM salelog_reading")
        return int(cursor.fetchone()[0])


def get(path: str, **headers: str) -> Any:
    """Call the shop, as anybody may."""
    return Client().get(path, headers=headers)


def read(path: str) -> bytes:
    answer = get(path)
    assert answer.status_code == 200, answer.content
    return bytes(answer.content)


def verifier_of(card: SaleCard, *, kept: Mapping[int, bytes] | None = None, tickets: Sequence[str] = ()) -> Verifier:
    """Return a verifier that has read all of a sale's log. tickets: of its buyers."""
    verifier = Verifier(read, card.slug)
    verifier.kept = dict(kept or {})
    verifier.read_keys()
    for ticket in tickets:
        verifier.show(ticket)
    verifier.round()
    verifier.replay.finish(now_us=time.time_ns() // 1000)
    return verifier


def checked(card: SaleCard) -> Verifier:
    """Publish what there is, and fail unless the log holds by every rule."""
    publish()
    verifier = verifier_of(card)
    assert verifier.replay.faults == {}, [json.loads(leaf) for leaf in leaves(card)]
    return verifier


def leaves(card: SaleCard) -> list[bytes]:
    """Return the leaves of a log, as they are served."""
    verifier = Verifier(read, card.slug)
    return list(verifier.leaves(0, SaleLog.objects.get(sale_id=card.sale_id).size))


def told(card: SaleCard) -> list[tuple[str, ...]]:
    """Return the kind of each leaf, with what is most of interest in it."""
    words = ("outcome", "act", "change", "reason", "lost")
    found = (json.loads(leaf) for leaf in leaves(card))
    return [(leaf["kind"], *(str(leaf[word]) for word in words if word in leaf)) for leaf in found]
