"""Reads the live table of stock: rows, sales, lines and locks; a fixed number of queries and round trips.
Never changes anything.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line import snapshot
from inventory.line.snapshot import StockLook
from inventory.models import Stock
from shop.models import Sale, open_at
from shop.names.sentences import in_words
from shop.sales.decision_rates import Sample, measure

PAGE_ROWS = 100
# A speed over less than this would be noise.
RATE_SECONDS = 1.0
COLUMNS = (
    "sku", "sales", "total", "free", "held", "sold", "in_line", "waitlisted", "in_flight", "dead_letters",
    "oldest_seconds", "decisions_per_second", "fence", "lock_holder", "lock_seconds", "lock_waiters", "drift",
)  # fmt: skip
FILTERS = {"": _("all"), "running": _("running"), "sold_out": _("sold out"), "drifting": _("drifting")}


class _Seen(NamedTuple):
    """What this process saw of a SKU: the line's decisions, and the versions of the line's stock and of the row."""

    decisions: Sample
    version: int
    row_version: int


# By SKU. Each web process measures for itself, over whatever time has passed since it last looked.
_LAST: dict[str, _Seen] = {}


@dataclass(slots=True)
class StockRow:
    """One SKU. look is None while Redis is away; rate: decisions a second, None at the first look."""

    stock: Stock
    look: StockLook | None
    rate: float | None = None
    drift: str = ""
    sales: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def drift_text(self) -> str:
        """The drift in the reader's language."""
        return in_words(self.drift)

    @property
    def holder_text(self) -> str:
        """Who holds the lock, in the reader's language; '' for nobody."""
        return in_words(self.look.lock.holder) if self.look is not None else ""

    def cells(self) -> dict[str, str | int | float | None]:
        """Return the row by column, for CSV and programs; what Redis did not tell is None."""
        stock, look = self.stock, self.look
        of_redis: tuple[str | int | float | None, ...] = (None,) * 5
        of_lock: tuple[str | int | float | None, ...] = (None,) * 3
        if look is not None:
            line, lock = look.line, look.lock
            oldest = _rounded(look.oldest_seconds)
            of_redis = (line.waiting, line.waitlisted, line.in_flight, line.dead_letters, oldest)
            of_lock = (lock.holder, _rounded(look.lock_seconds), len(lock.waiters))
        sales = " ".join(f"{slug}:{state}" for _, slug, state in self.sales)
        counts = (stock.sku, sales, stock.total, stock.available, stock.held, stock.sold)
        values = (*counts, *of_redis, self.rate, stock.fence, *of_lock, self.drift)
        return dict(zip(COLUMNS, values, strict=True))


class StockPage(NamedTuple):
    """What one page of the table shows. redis_error: why the columns of the line are empty, '' when they are not."""

    rows: list[StockRow]
    page: Page[Stock] | Page[StockRow]
    redis_error: str


def read_stock(*, search: str = "", state: str = "", number: int | str = 1, whole: bool = False) -> StockPage:
    """Return one page of rows, or all of them if `whole`. state: one of FILTERS; search: part of a SKU.

    Drift is known only by asking Redis, so that filter looks at every SKU; the others look at one page.
    """
    stocks = _stocks(search=search, state=state)
    if state != "drifting" and not whole:
        page = Paginator(stocks, PAGE_ROWS).get_page(number)
        rows, redis_error = _rows(list(page.object_list))
        return StockPage(rows, page, redis_error)
    rows, redis_error = _rows(list(stocks))
    if state == "drifting":
        rows = [row for row in rows if row.drift]
    found = Paginator(rows, max(1, len(rows)) if whole else PAGE_ROWS).get_page(number)
    return StockPage(list(found.object_list), found, redis_error)


def _stocks(*, search: str, state: str) -> QuerySet[Stock]:
    stocks = Stock.objects.order_by("sku")
    if search:
        stocks = stocks.filter(sku__icontains=search)
    else:
        # A SKU whose sales are all retired has nothing live; a search by name still finds it.
        sales = Sale.objects.filter(stock=OuterRef("pk"))
        stocks = stocks.filter(Exists(sales.filter(retired_at__isnull=True)) | ~Exists(sales))
    if state == "running":
        running = Sale.objects.filter(open_at(timezone.now()), stock=OuterRef("pk"))
        stocks = stocks.filter(Exists(running))
    if state == "sold_out":
        stocks = stocks.filter(available=0, held=0, total__gt=0)
    return stocks


def _rows(stocks: Sequence[Stock]) -> tuple[list[StockRow], str]:
    redis_error, looks = "", {}
    try:
        looks = snapshot.look_at(redis.connect(), [stock.sku for stock in stocks])
    except RedisUnavailable as error:
        redis_error = error.detail
    rows = {stock.pk: StockRow(stock, looks.get(stock.sku)) for stock in stocks}
    now = timezone.now()
    for sale in _sales(rows):
        rows[sale.stock_id].sales.append((sale.pk, sale.slug, sale.state_at(now)))
    for row in rows.values():
        if row.look is not None:
            row.rate, row.drift = _judge(row.stock, row.look, on_sale=bool(row.sales))
    return list(rows.values()), redis_error


def _sales(stock_ids: Iterable[int]) -> list[Sale]:
    """Return the sales that run or come, and of those that are over the last one of each SKU."""
    found = Sale.objects.filter(stock__in=list(stock_ids)).order_by("stock_id", "-opens_at")
    now, shown, taken = timezone.now(), [], set()
    for sale in found.only("pk", "slug", "stock_id", "opens_at", "closes_at", "operator_state"):
        if sale.state_at(now) != "closed" or sale.stock_id not in taken:
            shown.append(sale)
        taken.add(sale.stock_id)
    return shown


def _judge(stock: Stock, look: StockLook, *, on_sale: bool) -> tuple[float | None, str]:
    """Return decisions a second since this process last looked, and how Redis and the row differ ('' if they agree).

    The row was read before Redis was. What is on its way is no drift, so some of it takes a second look to be told.
    """
    seen, line = _LAST.get(stock.sku), look.line
    drift = _drift(stock, look, seen=seen, on_sale=on_sale)
    last = seen.decisions if seen else None
    sample = measure(last, decided=line.decided, at=time.monotonic(), min_seconds=RATE_SECONDS)
    if sample is not last:
        _LAST[stock.sku] = _Seen(sample, line.version, stock.version)
    return _rounded(sample.rate), drift


def _drift(stock: Stock, look: StockLook, *, seen: _Seen | None, on_sale: bool) -> str:
    line = look.line
    if not line.primed:
        return "Redis does not know it" if on_sale else ""
    if seen is not None and seen.version > stock.version:
        return f"Redis had version {seen.version}, the row has {stock.version}"
    figures, row = (line.available, line.held, line.sold), (stock.available, stock.held, stock.sold)
    if line.version == stock.version and figures != row:
        return f"Redis says {figures[0]} free, {figures[1]} held, {figures[2]} sold"
    behind = line.version < stock.version and not line.in_flight
    if behind and seen is not None and seen.version == line.version and seen.row_version > line.version:
        return f"Redis is {stock.version - line.version} versions behind"
    return ""


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
