"""Audits a sale by its slug, for the API, the command line and the admin. Never repairs anything."""

from __future__ import annotations

from typing import Any

from inventory.audit import Scope, audit
from inventory.exceptions import SaleNotFound
from shop.models import Sale


def audit_sale(slug: str) -> dict[str, Any]:
    """Return {ok, invariants, counts} of the sale `slug`. Raises SaleNotFound, RedisUnavailable."""
    sale = Sale.objects.select_related("stock").filter(slug=slug).first()
    if sale is None:
        raise SaleNotFound(f"There is no sale {slug!r}.")
    return audit(Scope(sku=sale.stock.sku, stock_id=sale.stock_id, sale_id=sale.pk))
