"""A worker that is stopped between two statements of a pipeline loses the row of its SKU. Uses the real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest

from inventory import ledger, postgres
from tests.support.road import own_connection
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

LOCK_ROW = "SELECT FROM inventory_stock WHERE sku = %s FOR UPDATE"

pytestmark = pytest.mark.usefixtures("shop_database")


def is_locked(connection: postgres.Connection, sku: str) -> bool:
    try:
        connection.execute(f"{LOCK_ROW} NOWAIT", [sku])
    except psycopg.errors.LockNotAvailable:
        return True
    return False


@pytest.mark.parametrize("limit_seconds", [1, 0], ids=["bounded", "control: unbounded"])
def test_who_stops_between_two_statements_of_a_pipeline_keeps_no_row(
    limit_seconds: int, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "MAX_TRANSACTION_SECONDS", limit_seconds)
    sku, worker = make_sale(new_sku(), units=1).sku, postgres.LastingConnection()
    # What no other timeout bounds: they are a second, too.
    short = "SET statement_timeout = '1s'; SET idle_in_transaction_session_timeout = '1s'"
    with own_connection() as other, suppress(psycopg.Error):
        stopped = worker.get()
        stopped.execute(short)
        with stopped.pipeline(), stopped.transaction():
            ledger.claim_stock(stopped.cursor(), sku=sku, fence=1)
            wait_until(lambda: is_locked(other, sku), what="the row is locked")
            if limit_seconds:
                wait_until(lambda: not is_locked(other, sku), what="the row is free")
            else:
                other.execute("SET lock_timeout = '4s'")
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    other.execute(LOCK_ROW, [sku])
    worker.drop()
