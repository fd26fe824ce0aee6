"""What the hand of one shop does in its process: makes its sales, and measures what only it can see.
Never runs in the benchmark's own process, which works on no shop's stores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

from inventory.exceptions import RedisUnavailable
from inventory.line import reading
from inventory.line.snapshot import look_at
from inventory.postgres import LastingConnection
from inventory.redis import Client, connect, keys, run_commands
from inventory.telemetry import page
from loadtest.bench.age import past
from loadtest.bench.gate.settlement import BATCH, admit, fill_line, fresh_ask, warm_settler
from loadtest.bench.harness.benchmark import in_turns
from loadtest.bench.harness.fixtures import make_fixture
from loadtest.bench.harness.machine import one_row
from loadtest.bench.harness.timing import took_ms
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.settle import expiry
from loadtest.bench.shop.costs import bytes_of, settle_down
from shop import buyers
from shop.gate import metrics
from shop.gate.sales.state import SaleEntry
from shop.models import Sale
from shop.orders import holds
from shop.payments import recovery
from shop.sales import catalogue, priming
from shop.staff import retiring, sale_control
from shop.web.my_tickets import ORDERS_PER_PAGE
from workers.expirer import MAX_A_ROUND, RECENT_SECONDS
from workers.management.commands.run_worker import RECONCILE_SECONDS
from workers.process_loop import Stopped
from workers.reconciler.books import skus_on_sale
from workers.reconciler.gauges import Gauges
from workers.reconciler.loop import Reconciler
from workers.reconciler.pace import Step
from workers.reconciler.retention import Retention
from workers.reconciler.retirement import Retirement

LIVE, GONE, FORGOTTEN, LARGE = "age-live", "age-gone", "age-forgotten", "age-large"
# Longer than any run: what ends meanwhile is work, and an idle shop has none.
HOLD_SECONDS = 86_400
GONE_UNITS, GONE_CAPACITY = 100, 200
WATCH_SECONDS = 0.002
LOOKS = 30
# Priming is safe to repeat; while a million records are rewritten on disk, one step may take too long.
PRIME_TRIES, PRIME_AGAIN_SECONDS = 10, 2.0
MILLISECOND = timedelta(milliseconds=1)
DECIDED = "SELECT id, seq FROM shop_order WHERE id > %s ORDER BY id"
# Of the large sale, in percent; its held orders are held for longer than any run.
LARGE_STATES = {"paid": 40, "expired": 15, "cancelled": 5, "sold_out": 20, "held": 20}
ENDED, ENDING = "age-ended", "age-ending"
# So that the last of them is written before the first is due.
BEFORE_FIRST_END_SECONDS = 120.0
# The indexes keep an entry of each hold that has ended until a vacuum; its stock and history are written already.
END_WITHOUT_VACUUM = "UPDATE shop_order SET state = 'expired', changed_at = now() WHERE sale_id = %s"
LATE = """
SELECT count(*), count(*) FILTER (WHERE state = 'expired'),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY late), percentile_cont(0.99) WITHIN GROUP (ORDER BY late), max(late)
FROM (SELECT state, extract(epoch FROM changed_at - hold_expires_at)::float8 AS late
      FROM shop_order WHERE sale_id = %s) AS ended
"""

MAX_ORDERS = "SELECT buyer, count(*) FROM shop_order WHERE state = 'paid' GROUP BY buyer ORDER BY 2 DESC, 1 LIMIT 1"


def make_live_sales() -> None:
    """Make an open sale with plenty, and one that is sold out."""
    make_fixture(LIVE, hold_seconds=HOLD_SECONDS)
    gone = make_fixture(GONE, hold_seconds=HOLD_SECONDS, units=GONE_UNITS)
    fill_line(connect(), gone, count=GONE_UNITS + GONE_CAPACITY)


def retired_bytes(*, holds: int) -> tuple[int, int]:
    """Sell `holds` units, let their holds end, retire the sale; return the SKU's bytes in Redis before and after."""
    client = connect()
    fixture = make_fixture(FORGOTTEN, hold_seconds=expiry.HOLD_SECONDS)
    expiry.make_due(fixture, holds=holds)
    expiry.expiry_seconds(fixture, holds=holds)
    sale_control.close(fixture.slug, actor="benchmark")
    before = _bytes_of_sku(client, fixture.sku)
    retiring.retire(fixture.slug, actor="benchmark")
    return before, _bytes_of_sku(client, fixture.sku)


def _bytes_of_sku(client: Client, sku: str) -> int:
    # Whatever has its name, and not what the shop believes there is: a key it forgot to forget must be seen.
    return bytes_of(client, list(client.scan_iter(match=f"*{{{sku}}}*", count=10_000)))


def watch_decisions(*, seconds: float) -> list[tuple[float, float]]:
    """Return each order that is committed within `seconds`: when its place was given (s since 1970), its wait in ms."""
    found: list[tuple[float, float]] = []
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM shop_order")
        last, ends = cursor.fetchone()[0], time.time() + seconds
        while time.time() < ends:
            cursor.execute(DECIDED, [last])
            rows, now = cursor.fetchall(), time.time()
            found += [(seq / 1e6, (now - seq / 1e6) * 1000) for _, seq in rows]
            last = rows[-1][0] if rows else last
            time.sleep(WATCH_SECONDS)
    return found


def looks_ms() -> dict[str, list[float]]:
    """Return how long each worker's look for work took, in ms, looked again and again."""
    client, database = connect(), LastingConnection()

    def find_due() -> None:
        with database.get().cursor() as cursor:
            holds.find_due(cursor, limit=MAX_A_ROUND, ended_within_seconds=RECENT_SECONDS)

    # What is to be asked, and not the asking: that takes what the provider takes.
    kinds = [kind.query.sql_with_params() for name in settings.PAYMENT_PROVIDERS for kind in recovery.due(name)]

    def find_open() -> None:
        with connection.cursor() as cursor:
            for statement, values in kinds:
                cursor.execute(statement, values)
                cursor.fetchall()

    looks: dict[str, Callable[[], object]] = {
        "expirer": find_due,
        "settler": lambda: reading.look_for_work(client),
        "reconciler": skus_on_sale,
        # New ones each time: the worker's own look again only after a while.
        "retirement": lambda: Retirement(client, throttle=lambda: None).work_once(),
        "retention": lambda: Retention().work_once(),
        "payments worker": find_open,
    }
    try:
        return {name: [took_ms(look) for _ in range(LOOKS)] for name, look in looks.items()}
    finally:
        database.drop()


def token_of_old_buyer() -> str:
    """Return the token of a buyer with more orders than anybody. Raises LoadFailed when they fill no page."""
    buyer, orders = one_row(MAX_ORDERS)
    if orders < ORDERS_PER_PAGE:
        raise LoadFailed(f"nobody has more than {orders} orders with units")
    return buyers.token_of(buyer)


def script_calls() -> int:
    """Return how many script calls Redis has answered until now."""
    (stats,) = run_commands(connect(), [("INFO", "commandstats")])
    return sum(int(stats[name]["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)


def settle_spread(*, asks: int, skus: int, rounds: int) -> list[tuple[float, float]]:
    """Settle `asks` requests in one SKU and spread over `skus`, in turns; return both rates of each round, a second."""
    client = connect()
    rates: dict[int, list[float]] = {1: [], skus: []}
    with warm_settler(client, make_fixture("age-warm"), batch=BATCH) as settler:
        shelves = {count: [make_fixture(f"age-spread-{count}-{each}") for each in range(count)] for count in rates}
        for _, count in in_turns((1, skus), rounds=rounds):
            for fixture in shelves[count]:
                admit(client, fixture, [fresh_ask(fixture) for _ in range(asks // count)])
            began = time.monotonic()
            settle_down(settler, client, shelves[count])
            rates[count].append(asks // count * count / (time.monotonic() - began))
    return list(zip(rates[1], rates[skus], strict=True))


@past.without_timeout()
def fill_large_sale(*, records: int) -> int:
    """Make a live sale with that many orders in every stage, and as many records in Redis; return how many it has."""
    now = timezone.now()
    states = {state: records * percent // 100 for state, percent in LARGE_STATES.items()}
    written = past.write_stock(LARGE, states=states, opens_at=now)
    past.write_orders([written], decided_at=now, hold_end=lambda _: now + timedelta(seconds=HOLD_SECONDS))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    prime(written.sale.slug)
    client = connect()
    return int(run_commands(client, [("HLEN", keys.records(LARGE))])[0])


def prime(slug: str) -> None:
    """Prime a sale of very many orders. Raises RedisUnavailable when Redis is too slow for it time after time."""
    for _ in range(PRIME_TRIES - 1):
        with suppress(RedisUnavailable):
            priming.prime_sale(slug)
            return
        time.sleep(PRIME_AGAIN_SECONDS)
    priming.prime_sale(slug)


class _Watched(Reconciler):
    """A reconciler that notes when it compared the large sale, and ends when it would do so again."""

    def __init__(self, client: Client, *, longest_seconds: float) -> None:
        self._gives_up_at = time.monotonic() + longest_seconds
        self.round_seconds: float | None = None
        super().__init__(client, stopping=self.is_over, gentle=True)
        self._comes_again = False

    def is_over(self) -> bool:
        return self._comes_again or time.monotonic() > self._gives_up_at

    def steps(self, sku: str, *, sale_ids: Sequence[int]) -> Iterator[Step]:
        if sku != LARGE:
            yield from super().steps(sku, sale_ids=sale_ids)
        elif self.round_seconds is not None:
            self._comes_again = True
        else:
            began = time.monotonic()
            yield from super().steps(sku, sale_ids=sale_ids)
            self.round_seconds = time.monotonic() - began


def reconcile_large_sale(*, longest_seconds: float) -> tuple[float | None, int, float]:
    """Work as the reconciler from one comparison of the large sale to the next, or until the time is up.

    Return the seconds of the comparison (None: it never came to its end), how many differences were found, and the
    CPU seconds this process used.
    """
    reconciler = _Watched(connect(), longest_seconds=longest_seconds)
    used, drifts = time.process_time(), 0
    with suppress(Stopped):
        while True:
            drifts += reconciler.work_once()
            time.sleep(RECONCILE_SECONDS)
    return reconciler.round_seconds, drifts, time.process_time() - used


@past.without_timeout()
def end_without_vacuum(*, holds: int) -> None:
    """Write `holds` holds that have ended, one by one, and that no vacuum has come upon."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_order SET (autovacuum_enabled = off)")
    hour_ago = timezone.now() - timedelta(hours=1)
    written = past.write_stock(ENDED, states={"expired": holds}, opens_at=hour_ago)
    held = replace(written, names=[(name, "held") for name, _ in written.names])
    past.write_orders([held], decided_at=hour_ago, hold_end=lambda number: hour_ago + number * MILLISECOND)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_order DISABLE TRIGGER order_changes")
        cursor.execute(END_WITHOUT_VACUUM, [written.sale.pk])
        cursor.execute("ALTER TABLE shop_order ENABLE TRIGGER order_changes")
        cursor.execute("ANALYZE shop_order")
        # What is not swept is put in order now, and not while the sweep is measured.
        cursor.execute("VACUUM ANALYZE shop_orderevent, inventory_stockmovement")


@past.without_timeout()
def write_ending(*, holds: int, seconds: float) -> tuple[int, float]:
    """Write `holds` holds whose ends are spread over `seconds`; return the sale's id, and how long until the last."""
    now = timezone.now()
    begin = now + timedelta(seconds=BEFORE_FIRST_END_SECONDS)
    written = past.write_stock(ENDING, states={"held": holds}, opens_at=now)
    past.write_orders(
        [written], decided_at=now, hold_end=lambda number: begin + timedelta(seconds=seconds) * number / holds
    )
    prime(written.sale.slug)
    left = (begin - timezone.now()).total_seconds()
    if left < 0:
        raise LoadFailed(f"the first hold ended {-left:.1f} s before the last was written")
    return written.sale.pk, left + seconds


def lateness(*, sale_id: int) -> tuple[int, int, float, float, float]:
    """Return how many holds there were, how many have ended, and how late: p50, p99 and the last, in seconds."""
    orders, ended, p50, p99, latest = one_row(LATE, sale_id)
    return orders, ended, p50, p99, latest


def metrics_ms(*, sales: int) -> dict[str, list[float]]:
    """Return the CPU time of a page of metrics with so many live sales, in ms, time after time: by kind of process.

    Never changes a sale: the many are copies in memory of one that is in the stores.
    """
    entries = _entries(sales)
    shown: dict[str, page.Families] = {
        metrics.PROCESS: lambda: [metrics.figures_age(entries)],
        "reconciler": _gauges(sales).collect,
    }
    return {kind: [_page_cpu_ms(kind, read) for _ in range(LOOKS)] for kind, read in shown.items()}


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
    gauges, look = Gauges(), look_at(connect(), [LIVE])[LIVE]
    live = Sale.objects.select_related("stock").get(slug=LIVE)
    shown = [deepcopy(live) for _ in range(sales)]
    for number, sale in enumerate(shown):
        sale.stock.sku = f"{LIVE}-{number}"
    gauges.note(shown, {sale.stock.sku: look for sale in shown})
    return gauges


def _page_cpu_ms(kind: str, read: page.Families) -> float:
    began = time.thread_time()
    page.render(kind, read())
    return (time.thread_time() - began) * 1000
