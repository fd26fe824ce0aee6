"""A process that is stopped between two statements of a pipeline loses the row of its SKU. Uses the real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError

from inventory import ledger, postgres
from inventory.postgres import STOPPED_TOO_LONG, Connection, is_away
from shop.payments import captures
from shop.payments.captures import Capture
from shop.sales.catalogue import SaleCard
from tests.support.road import own_connection
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")

LOCK_ROW = "SELECT FROM inventory_stock WHERE sku = %s FOR UPDATE"
LIMIT_SECONDS, LONGER_SECONDS = 5, 8
# With the limit it is never waited for: a machine that stands still must not end the wait before the limit does.
FAR_LONGER_SECONDS = 120
# The timeouts that do not end it; each would be over before the limit.
OTHERS = "SET statement_timeout = '3s'; SET idle_in_transaction_session_timeout = '3s'"


@pytest.fixture(params=[True, False], ids=["limited", "control: no limit"])
def is_limited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(postgres, "MAX_TRANSACTION_SECONDS", LIMIT_SECONDS if request.param else 0)
    return bool(request.param)


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=1)


class StillLocked(Exception):
    """The row of a SKU was locked for longer than the limit."""


def is_locked(other: Connection, sku: str) -> bool:
    try:
        other.execute(f"{LOCK_ROW} NOWAIT", [sku])
    except psycopg.errors.LockNotAvailable:
        return True
    return False


def stand_still(sku: str, *, is_limited: bool) -> None:
    """Return when the row that this process has locked is free again. Raises StillLocked."""
    with own_connection() as other:
        wait_until(lambda: is_locked(other, sku), what="the row is locked")
        other.execute(f"SET lock_timeout = '{FAR_LONGER_SECONDS if is_limited else LONGER_SECONDS}s'")
        try:
            other.execute(LOCK_ROW, [sku])
        except psycopg.errors.LockNotAvailable as error:
            raise StillLocked from error


def test_a_settler_that_stops_between_two_statements_keeps_no_row(card: SaleCard, is_limited: bool) -> None:
    worker = postgres.LastingConnection()
    stopped = worker.get()
    stopped.execute(OTHERS)

    def stop_in_a_batch() -> None:
        with stopped.pipeline(), stopped.transaction():
            ledger.claim_stock(stopped.cursor(), sku=card.sku, fence=1)
            stand_still(card.sku, is_limited=is_limited)

    with pytest.raises(psycopg.Error if is_limited else StillLocked) as ended:
        stop_in_a_batch()
    assert not is_limited or isinstance(ended.value, STOPPED_TOO_LONG) or is_away(ended.value)
    worker.drop()


def test_a_process_that_stops_while_it_brings_a_payment_in_keeps_no_row(
    card: SaleCard, is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        stand_still(card.sku, is_limited=is_limited)

    monkeypatch.setattr(captures, "send_capture", stop)
    target: Any = SimpleNamespace(sku=card.sku, stock_id=0, quantity=1)
    notice: Any = SimpleNamespace(event_id=card.sku, kind="captured", reference="none")
    with pytest.raises(DatabaseError if is_limited else StillLocked):
        captures.sell_held(Capture(notice=notice, target=target, provider_name="sandbox"))
