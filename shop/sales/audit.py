"""Audits a sale by its slug, for the API, the command line and the admin. Never repairs anything."""

from __future__ import annotations

from typing import Any

from inventory.audit.run import Scope, audit
from inventory.exceptions import SaleNotFound
from shop.models import Sale

# What the migrations put in place so that orders, their history, terms and the acts of staff stay as they were written.
GUARDS = (
    ("shop_order", "order_begins"),
    ("shop_order", "order_changes"),
    ("shop_order", "order_rows_never_go"),
    ("shop_orderevent", "event_rows_never_change"),
    ("shop_orderevent", "event_table_never_emptied"),
    ("shop_saleterms", "terms_never_change"),
    ("shop_staffact", "act_rows_never_change"),
)
SEALED = ("shop_orderevent", "shop_staffact")


def audit_sale(slug: str, *, thorough: bool = False) -> dict[str, Any]:
    """Return {ok, invariants, counts} of the sale `slug`, with a note when it is retired.

    thorough: compare every record of Redis with its order, not some in turn. Raises SaleNotFound, RedisUnavailable.
    """
    sale = Sale.objects.select_related("stock").filter(slug=slug).first()
    if sale is None:
        raise SaleNotFound(f"There is no sale {slug!r}.")
    return audit(scope_of(sale), thorough=thorough)


def scope_of(sale: Sale) -> Scope:
    """Return what an audit of `sale` looks at."""
    return Scope(
        sku=sale.stock.sku,
        stock_id=sale.stock_id,
        sale_id=sale.pk,
        guards=GUARDS,
        sealed=SEALED,
        retired=sale.retired_at is not None,
    )
