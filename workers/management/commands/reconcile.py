"""manage.py reconcile [--sale SLUG] [--json] [--dry-run]: compares Redis, orders and ledger once, mends what is safe.
Exit code 0 only if nobody has to look. The reconciler process does the same again and again.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory import redis
from inventory.exceptions import FairdropError
from shop.sales import catalogue
from workers.payments import end_open_payments, left_open
from workers.reconciler.books import SkuOnSale, skus_on_sale
from workers.reconciler.loop import Reconciler
from workers.reconciler.report import Drift, as_dict, as_text, log_drifts


class Command(BaseCommand):
    help = "Compare Redis, orders and ledger; mend what is safe; exit code 1 when a person must look."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--sale", metavar="SLUG", help="only the SKU of this sale")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")
        parser.add_argument("--dry-run", action="store_true", help="say what is wrong and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            report = run(sale=options["sale"], repair=not options["dry_run"])
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(json.dumps(report, indent=2) if options["json"] else as_text(report))
        if not report["ok"]:
            raise CommandError("somebody has to look: see the alarms above")


def run(*, sale: str | None, repair: bool) -> dict[str, Any]:
    """Compare every SKU and all payments, or the SKU of `sale`; return the report. Raises SaleNotFound, Unavailable."""
    skus = skus_on_sale()
    if sale is not None:
        sku = catalogue.find_sale(sale).sku
        skus = {sku: skus.get(sku, SkuOnSale([], 0))}
    reconciler = Reconciler(redis.connect(timeout_seconds=2), stopping=lambda: False, repair=repair)
    drifts: list[Drift] = end_open_payments() if repair and sale is None else []
    drifts += left_open() if sale is None else []
    for sku, on_sale in skus.items():
        drifts += reconciler.compare(sku, sale_ids=on_sale.sale_ids)
    if repair:
        log_drifts(drifts)
    return as_dict(list(skus), drifts)
