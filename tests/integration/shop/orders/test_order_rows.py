"""What settlement asks of orders, as PostgreSQL plans it before it knows anything of the table."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from inventory.postgres import SET_INDEX_ONLY
from shop.order_rows import DECIDED, LIVE_UNITS

VALUES = {"sale_ids": "{1,1,2}", "buyers": "{ann,bob,ann}", "request_ids": "{a,b,c}"}
JOINED = """
SELECT o.sale_id, o.buyer, sum(o.quantity)
FROM unnest(%(sale_ids)s::bigint[], %(buyers)s::text[]) AS asked (sale_id, buyer)
JOIN shop_order o ON o.sale_id = asked.sale_id AND o.buyer = asked.buyer AND o.state IN ('held', 'paid')
GROUP BY o.sale_id, o.buyer
"""

pytestmark = pytest.mark.usefixtures("shop_database")


def looked_up(statement: str) -> list[str]:
    """Return by what rows of an empty shop_order are found; a plan made then may be kept for a whole opening."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE shop_order (LIKE public.shop_order INCLUDING ALL) ON COMMIT DROP")
        cursor.execute(SET_INDEX_ONLY)
        cursor.execute(f"EXPLAIN {statement}", VALUES)
        return [line.strip() for (line,) in cursor.fetchall() if "Index Cond" in line]


@pytest.mark.parametrize(("statement", "column"), [(LIVE_UNITS, "buyer"), (DECIDED, "request_id")])
def test_a_batch_finds_its_orders_by_an_index_from_the_first_one_on(statement: str, column: str) -> None:
    """However many orders there will be. The control: as a join it reads all of them for a batch."""
    assert all(f"({column})::text = " in condition for condition in looked_up(statement))
    assert len(looked_up(statement)) == 1
    assert looked_up(JOINED) == []
