"""What the pages of metrics cost with very many live sales, in CPU time: that of a web process, and a reconciler's.
Never changes a sale: the many are copies in memory of one that is in the stores.
"""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import replace

from inventory.line import reading
from inventory.line.snapshot import look_at
from inventory.redis import connect
from inventory.telemetry import page
from loadtest.bench.age.shops import LIVE, LOOKS
from loadtest.bench.gate.settlement import CLIENT_TIMEOUT_SECONDS
from shop.gate import metrics
from shop.gate.sales.state import SaleEntry
from shop.models import Sale
from shop.sales import catalogue
from workers.reconciler.gauges import Gauges


def metrics_ms(*, sales: int) -> dict[str, list[float]]:
    """Return the CPU time of a page of metrics with so many live sales, in ms, time after time: by kind of process."""
    shown: dict[str, page.Collector] = {
        metrics.PROCESS: metrics.SaleCollector(_entries(sales)),
        "reconciler": _gauges(sales),
    }
    return {kind: [_page_cpu_ms(kind, collector) for _ in range(LOOKS)] for kind, collector in shown.items()}


def _entries(sales: int) -> list[SaleEntry]:
    card = catalogue.find_sale(LIVE)
    figures = reading.LineFigures(
        available=card.available, held=card.held, sold=card.sold, queued=0, version=card.version
    )
    entries = [SaleEntry(replace(card, slug=f"{LIVE}-{number}", sku=f"{LIVE}-{number}")) for number in range(sales)]
    for entry in entries:
        entry.see(figures, moment=time.monotonic())
    return entries


def _gauges(sales: int) -> Gauges:
    gauges, look = Gauges(), look_at(connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS), [LIVE])[LIVE]
    live = Sale.objects.select_related("stock").get(slug=LIVE)
    shown = [deepcopy(live) for _ in range(sales)]
    for number, sale in enumerate(shown):
        sale.stock.sku = f"{LIVE}-{number}"
    gauges.note(shown, {sale.stock.sku: look for sale in shown})
    return gauges


def _page_cpu_ms(kind: str, collector: page.Collector) -> float:
    began = time.thread_time()
    page.render(kind, collector)
    return (time.thread_time() - began) * 1000
