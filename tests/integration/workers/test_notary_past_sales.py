"""What a step of the notary costs a shop that has sold for years. Real stores; counts rows and no time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.db.models import Max
from django.utils import timezone

from shop.models import Sale
from shop.salelog.models import LineEvent, SaleLog
from shop.salelog.sales import begin_logs
from tests.support.query_plans import rows_read
from tests.support.sale_logs import publish, read_to
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")

PAST = 2_000


def make_past_sales(sale: Sale) -> None:
    """Write sales of the same SKU that were retired before there were logs, PAST and one more."""
    copies = [Sale(**values_of(sale) | {"slug": f"{sale.slug}-{number}"}) for number in range(PAST + 1)]
    Sale.objects.bulk_create(copies)


def values_of(sale: Sale) -> dict[str, object]:
    fields = ("product", "stock", "title", "price", "opens_at", "closes_at")
    return {name: getattr(sale, name) for name in fields} | {"operator_state": "closed", "retired_at": timezone.now()}


def retire_unread(sale: Sale) -> None:
    """Let nobody have read the last act of a retired sale."""
    number = (LineEvent.objects.aggregate(last=Max("number"))["last"] or 0) + 1_000_000
    LineEvent.objects.create(number=number, stock=sale.stock, sale=sale, kind="act", change=0, act="retire")


def test_past_sales_are_not_read_when_logs_begin(new_sku: Callable[[], str]) -> None:
    """Whatever PostgreSQL knows of the tables. The control: the sales without a log, retired or not."""
    publish()
    card = make_sale(new_sku(), units=1)
    with transaction.atomic(), connection.cursor() as cursor:
        make_past_sales(Sale.objects.get(pk=card.sale_id))
        retired = Sale.objects.latest("pk")
        retire_unread(retired)
        cursor.execute("ANALYZE shop_sale")
        before = rows_read("shop_sale")
        begin_logs(cursor, read_to=read_to())
        began = rows_read("shop_sale")
        assert SaleLog.objects.filter(sale_id__in=[card.sale_id, retired.pk]).count() == 2
        assert Sale.objects.filter(log=None).count() >= PAST
        assert began - before < PAST <= rows_read("shop_sale") - began
        transaction.set_rollback(True)
