"""What the hand of one shop does in its process: writes its past, its sales, and measures what only it can see.
Never runs in the benchmark's own process, which works on no shop's stores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from inventory import keys, ledger, line
from inventory.database import LastingConnection
from inventory.redis import Client, connect, run_commands
from loadtest.benchmarks import expiry_alone
from loadtest.benchmarks.books import fill_books
from loadtest.benchmarks.costs import admit, settle_down
from loadtest.benchmarks.goods import PRICE, make_goods, make_sale
from loadtest.benchmarks.rounds import in_turns
from loadtest.benchmarks.settlement_alone import BATCH, CLIENT_TIMEOUT_SECONDS, fill_line, fresh_ask, warm_settler
from shop import holds, retiring, sale_control
from shop.models import Sale
from workers.expirer import MOST_A_ROUND, RECENT_SECONDS
from workers.management.commands.run_worker import RECONCILE_SECONDS
from workers.reconcile_books import skus_on_sale
from workers.reconcile_payments import care_for_payments
from workers.reconciler import Reconciler

LIVE, GONE, FORGOTTEN, LARGE = "age-live", "age-gone", "age-forgotten", "age-large"
# Longer than any run: what ends meanwhile is work, and an idle shop has none.
HOLD_SECONDS = 86_400
GONE_UNITS, GONE_ROOM = 100, 200
PAST = timedelta(days=3)
# Of the old payments; the others were declined, and stay in the index of payments that are open.
CAPTURED = 0.8
SALES_A_COMMIT = 500
WATCH_SECONDS = 0.002
LOOKS = 30
ORDERS = """
COPY shop_order (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, actor, reason, unit_price, currency,
                 hold_expires_at, decided_at, changed_at, restored, terms_version, ordinal) FROM STDIN
"""
PAYMENTS = """
COPY shop_payment (order_id, provider, reference, amount, currency, state, reason, created_at, changed_at) FROM STDIN
"""
EVENTS = (
    "INSERT INTO shop_orderevent (order_id, from_state, to_state, at, actor, reason) "
    "SELECT id, 'queued', CASE state WHEN 'paid' THEN 'held' ELSE state END, decided_at, 'settler', '' "
    "FROM shop_order ORDER BY id",
    "INSERT INTO shop_orderevent (order_id, from_state, to_state, at, actor, reason) "
    "SELECT id, 'held', 'paid', decided_at, 'payment', '' FROM shop_order WHERE state = 'paid' ORDER BY id",
)
DECIDED = "SELECT id, seq FROM shop_order WHERE id > %s ORDER BY id"


@dataclass(frozen=True, kw_only=True)
class _PastSale:
    sale_id: int
    names: list[str]
    paid: int


def write_past(*, sales: int, orders: int, payments: int) -> None:
    """Write `sales` retired sales, each of a SKU of its own, with `orders` and `payments` in all, evenly spread."""
    moment = timezone.now() - PAST
    paid, each = max(1, round(payments * CAPTURED / sales)), orders // sales
    past: list[_PastSale] = []
    for start in range(0, sales, SALES_A_COMMIT):
        with transaction.atomic():
            numbers = range(start, min(start + SALES_A_COMMIT, sales))
            past += [_past_sale(number, opens_at=moment, orders=each, paid=paid) for number in numbers]
    Sale.objects.filter(pk__in=[sale.sale_id for sale in past]).update(retired_at=moment + PAST / 2)
    with connection.cursor() as cursor:
        # It refuses orders that begin as paid; the history is written below, as it would have written it.
        cursor.execute("ALTER TABLE shop_order DISABLE TRIGGER order_begins")
        _copy(cursor, ORDERS, _order_rows(past, moment=moment))
        cursor.execute("ALTER TABLE shop_order ENABLE TRIGGER order_begins")
        for statement in EVENTS:
            cursor.execute(statement)
        cursor.execute("SELECT id FROM shop_order WHERE state = 'paid' ORDER BY id")
        _copy(cursor, PAYMENTS, _payment_rows([row[0] for row in cursor.fetchall()], count=payments, moment=moment))
        cursor.execute("VACUUM ANALYZE")  # as autovacuum has done long before a sale is retired


def _past_sale(number: int, *, opens_at: datetime, orders: int, paid: int) -> _PastSale:
    """Make a sale whose units are all sold."""
    sku = f"age-past-{number}"
    sale = make_sale(sku, units=paid, opens_at=opens_at)
    names = [f"{sale.pk:x}-{each:022d}" for each in range(orders)]
    with connection.cursor() as cursor, connection.cursor() as moves:
        ledger.claim_stock(cursor, sku=sku, fence=1)
        ledger.read_claim(cursor)
        held = [(name, 1) for name in names[:paid]]
        ledger.hold_units(cursor, moves, stock_id=sale.stock_id, fence=1, holds=held, actor="settler")
        ledger.read_hold(cursor)
        ledger.sell_units(cursor, stock_id=sale.stock_id, units=paid)
    return _PastSale(sale_id=sale.pk, names=names, paid=paid)


def _copy(cursor: Any, statement: str, rows: Iterator[tuple[object, ...]]) -> None:
    with cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _order_rows(past: list[_PastSale], *, moment: datetime) -> Iterator[tuple[object, ...]]:
    seq = round(moment.timestamp() * 1_000_000)
    for sale in past:
        for number, name in enumerate(sale.names):
            state, seq = "paid" if number < sale.paid else "sold_out", seq + 1
            ends = moment + timedelta(minutes=10) if state == "paid" else None
            yield (
                *(name, sale.sale_id, f"past-buyer-{seq:x}", 1, 1, seq, state, "settler", "", PRICE, "EUR", ends),
                *(moment, moment, False, 1, number + 1),
            )


def _payment_rows(order_ids: list[int], *, count: int, moment: datetime) -> Iterator[tuple[object, ...]]:
    """Yield a captured payment of every order, and before some of them one that was declined."""
    declined = order_ids[: max(0, count - len(order_ids))]
    for state, ids in (("declined", declined), ("captured", order_ids)):
        for order_id in ids:
            reference = f"past-{state}-{order_id}"
            yield (
                order_id,
                "sandbox",
                reference,
                Decimal(PRICE),
                "EUR",
                state,
                "",
                moment,
                moment + timedelta(minutes=1),
            )


def make_live_sales() -> None:
    """Make an open sale with plenty, and one that is sold out."""
    make_goods(LIVE, hold_seconds=HOLD_SECONDS)
    gone = make_goods(GONE, hold_seconds=HOLD_SECONDS, units=GONE_UNITS)
    fill_line(connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS), gone, count=GONE_UNITS + GONE_ROOM)


def retired_bytes(*, holds: int) -> tuple[int, int]:
    """Sell `holds` units, let their holds end, retire the sale; return the SKU's bytes in Redis before and after."""
    client = connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS)
    goods = make_goods(FORGOTTEN, hold_seconds=expiry_alone.HOLD_SECONDS)
    expiry_alone.make_due(goods, holds=holds)
    expiry_alone.expiry_seconds(goods, holds=holds)
    sale_control.close(goods.slug, actor="benchmark")
    before = _bytes_of_sku(client, goods.sku)
    retiring.retire(goods.slug, actor="benchmark")
    return before, _bytes_of_sku(client, goods.sku)


def _bytes_of_sku(client: Client, sku: str) -> int:
    # Whatever has its name, and not what the shop believes there is: a key it forgot to forget must be seen.
    names = list(client.scan_iter(match=f"*{{{sku}}}*", count=10_000))
    return sum(size or 0 for size in run_commands(client, [("MEMORY", "USAGE", name, "SAMPLES", 0) for name in names]))


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
    client, database = connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS), LastingConnection()

    def find_due() -> None:
        with database.get().cursor() as cursor:
            holds.find_due(cursor, most=MOST_A_ROUND, ended_within_seconds=RECENT_SECONDS)

    def look_at_books() -> None:
        skus_on_sale()
        care_for_payments()

    looks = {"expirer": find_due, "settler": lambda: void(line.look_for_work(client)), "reconciler": look_at_books}
    try:
        return {name: [_milliseconds(look) for _ in range(LOOKS)] for name, look in looks.items()}
    finally:
        database.drop()


def void(_value: object) -> None:
    """Take a value and do nothing with it."""


def _milliseconds(look: Callable[[], None]) -> float:
    began = time.perf_counter()
    look()
    return (time.perf_counter() - began) * 1000


def script_calls() -> int:
    """Return how many script calls Redis has answered until now."""
    (stats,) = run_commands(connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS), [("INFO", "commandstats")])
    return sum(int(stats[name]["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)


def settle_spread(*, asks: int, skus: int, rounds: int) -> list[tuple[float, float]]:
    """Settle `asks` requests in one SKU and spread over `skus`, in turns; return both rates of each round, a second."""
    client = connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS)
    rates: dict[int, list[float]] = {1: [], skus: []}
    with warm_settler(client, make_goods("age-warm"), batch=BATCH) as settler:
        shelves = {count: [make_goods(f"age-spread-{count}-{each}") for each in range(count)] for count in rates}
        for _, count in in_turns((1, skus), rounds=rounds):
            for goods in shelves[count]:
                admit(client, goods, [fresh_ask(goods) for _ in range(asks // count)])
            began = time.monotonic()
            settle_down(settler, client, shelves[count])
            rates[count].append(asks // count * count / (time.monotonic() - began))
    return list(zip(rates[1], rates[skus], strict=True))


def fill_large_sale(*, records: int) -> int:
    """Make a live sale with that many orders in every stage, and as many records in Redis; return how many it has."""
    fill_books(LARGE, orders=records)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    client = connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS)
    return int(run_commands(client, [("HLEN", keys.records(LARGE))])[0])


class _Watched(Reconciler):
    """A reconciler that notes when it compared the large sale, and ends when it would do so again."""

    def __init__(self, client: Client, *, longest_seconds: float) -> None:
        self._gives_up_at = time.monotonic() + longest_seconds
        self.round_seconds: float | None = None
        super().__init__(client, stopping=self.is_over, gentle=True)
        self._comes_again = False

    def is_over(self) -> bool:
        return self._comes_again or time.monotonic() > self._gives_up_at

    def compare(self, sku: str, *, sale_ids: Any) -> Any:
        if sku != LARGE:
            return super().compare(sku, sale_ids=sale_ids)
        if self.round_seconds is not None:
            self._comes_again = True
            return []
        began = time.monotonic()
        drifts = super().compare(sku, sale_ids=sale_ids)
        self.round_seconds = time.monotonic() - began
        return drifts


def reconcile_large_sale(*, longest_seconds: float) -> tuple[float | None, int, float]:
    """Work as the reconciler from one comparison of the large sale to the next, or until the time is up.

    Return the seconds of the comparison (None: it never came to its end), how many differences were found, and the
    CPU seconds this process used.
    """
    reconciler = _Watched(connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS), longest_seconds=longest_seconds)
    used, drifts = time.process_time(), 0
    while not reconciler.is_over():
        drifts += reconciler.work_once()
        time.sleep(RECONCILE_SECONDS)
    return reconciler.round_seconds, drifts, time.process_time() - used
