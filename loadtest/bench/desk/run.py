"""Measures what staff wait for in a shop with many orders: each list, a search in it, all orders as CSV, one buyer
forgotten; and how all of them are forgotten after their time. Never leaves a slow call out, and fails when an order is
missing in the CSV, or a buyer is left.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from statistics import median

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from loadtest.bench.age.past import PAST, write_past
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, say
from loadtest.bench.harness.fixtures import make_fixture
from loadtest.bench.harness.report import Figure
from loadtest.bench.harness.servers import GATE, WebServer, kept_connection, open_page, read_page, serving
from loadtest.bench.harness.timing import took_ms
from loadtest.bench.load.loop import LoadFailed
from shop.models import Order, Sale
from shop.orders.numbers import order_number
from shop.orders.personal_data import FORGOTTEN, forget_buyer
from workers.reconciler.retention import PastBuyers

SLUG = "desk"
PART_BYTES = 64 * 1024
ORDERS, EXPORT = "/admin/shop/order/", "/admin/shop/order/export/"
ROWS_A_PAGE = 50
MAX_PAGE_MS = 300
MAX_CSV_SECONDS, MAX_CSV_MIB = 10, 50
MAX_FORGET_MS, MAX_RETENTION_SECONDS, MAX_STEP_MS = 300, 60, 500


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. payments: all but a fifth of them were captured; calls: of each page; forgotten: how
    many buyers one by one.
    """

    sales: int = 2
    orders: int = 100_000
    payments: int = 20_000
    calls: int = 9
    forgotten: int = 9


FULL = Plan()
QUICK = Plan(orders=5_000, payments=1_000, calls=3, forgotten=3)
METHOD = (
    "One web process, Valkey, PostgreSQL. {orders:,} orders of {sales} past sales, with {payments:,} payments, are "
    "written by COPY; statistics of the tables are up to date.",
    "A member of the staff with all rights asks for each page {calls} times, one call after the other over one "
    "connection, and reads it to its end; every call counts.",
    "All orders leave as CSV, once. Memory is what the web process had at most while they left, looked at after each "
    "64 KiB, less what it had before.",
    "Then {forgotten} buyers are forgotten one by one, as `manage.py forget_buyer` does, and after that all others, "
    "whose sales are made to have ended long ago, as the reconciler does, step by step; its rests are left out.",
    "What bounds it: the reader, the web process and PostgreSQL share the machine's cores.",
)


def figures_of(
    pages: Mapping[str, Sequence[float]],
    *,
    csv_seconds: float,
    csv_mib: float,
    csv_rows: int,
    forget_ms: Sequence[float],
    step_ms: Sequence[float],
) -> list[Figure]:
    """Return every figure with its bound. pages: ms of each call by the name of its page; csv: what it took, and had.

    forget_ms: of each buyer who was forgotten alone; step_ms: of each step in which all others were.
    """
    return [
        *(
            Figure(f"{name}, median", value=median(waits), unit="ms", at_most=MAX_PAGE_MS)
            for name, waits in pages.items()
        ),
        Figure(f"{csv_rows:,} orders as CSV", value=csv_seconds, unit="s", at_most=MAX_CSV_SECONDS),
        Figure("memory that the CSV took", value=csv_mib, unit="MiB", at_most=MAX_CSV_MIB),
        Figure("one buyer forgotten, median", value=median(forget_ms), unit="ms", at_most=MAX_FORGET_MS),
        Figure("all others forgotten", value=sum(step_ms) / 1000, unit="s", at_most=MAX_RETENTION_SECONDS),
        Figure("longest step of it", value=max(step_ms), unit="ms", at_most=MAX_STEP_MS),
    ]


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Write the orders, serve them and read the lists. Raises LoadFailed, ServerFailed."""
    plan = run.plan
    make_fixture(SLUG)
    say(f"{plan.orders:,} orders of {plan.sales} past sales")
    write_past(sales=plan.sales, orders=plan.orders, payments=plan.payments)
    with serving("web", GATE, place=run.place, slug=SLUG) as web, kept_connection(web.port) as connection:
        headers = logged_in()
        pages = {
            name: [read_page(connection, path, headers=headers)[1] for _ in range(plan.calls)]
            for name, path in pages_of(plan).items()
        }
        seconds, mib = read_csv(partial(open_page, connection, EXPORT, headers=headers), web, orders=plan.orders)
    forgets, steps = forget_ms(plan.forgotten), retention_ms()
    samples = [{"page": name, "ms": round(wait)} for name, waits in pages.items() for wait in waits]
    samples += [{"page": "one buyer forgotten", "ms": round(wait)} for wait in forgets]
    figures = figures_of(
        pages, csv_seconds=seconds, csv_mib=mib, csv_rows=plan.orders, forget_ms=forgets, step_ms=steps
    )
    return Findings(figures=figures, samples=samples)


def pages_of(plan: Plan) -> dict[str, str]:
    """Return the address of each list by what it shows."""
    middle = Order.objects.order_by("pk")[plan.orders // 2]
    day = (timezone.now() - PAST).date()
    of_sale = f"{ORDERS}?sale__id__exact={middle.sale_id}"
    last_page = plan.orders // plan.sales // ROWS_A_PAGE
    return {
        "orders": ORDERS,
        "orders that are paid": f"{ORDERS}?state__exact=paid",
        "orders of a sale": of_sale,
        "orders of a sale, last page": f"{of_sale}&p={last_page}",
        "orders of a day": f"{ORDERS}?from_day={day}&until_day={day + timedelta(days=1)}",
        "search by a whole number": f"{ORDERS}?q={order_number(middle.pk)}",
        "search by a part of a number": f"{ORDERS}?q={str(middle.pk)[-3:]}",
        "search by a part of a buyer": f"{ORDERS}?q={middle.buyer[4:]}",
        "search that finds nothing": f"{ORDERS}?q=nobody-at-all",
        "sales": "/admin/shop/sale/",
        "revenue": "/admin/shop/revenue/",
        "live stock": "/admin/inventory/stock/live/",
    }


def logged_in() -> dict[str, str]:
    """Log somebody with all rights in; return what their calls show."""
    client = Client()
    client.force_login(User.objects.create_superuser("desk"))
    return {"Cookie": f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"}


def read_csv(ask: Callable[[], http.client.HTTPResponse], web: WebServer, *, orders: int) -> tuple[float, float]:
    """Read all orders as CSV; return how many seconds it took, and MiB. Raises LoadFailed when one is missing."""
    before = most = machine.memory_mib(web.child)
    began, lines = time.perf_counter(), 0
    answer = ask()
    while part := answer.read(PART_BYTES):
        lines += part.count(b"\n")
        most = max(most, machine.memory_mib(web.child))
    seconds = time.perf_counter() - began
    if lines < orders + 1:  # the head; the sale of the probe may have an order, too
        raise LoadFailed(f"the CSV of {orders:,} orders has {lines:,} lines")
    return seconds, most - before


def forget_ms(count: int) -> list[float]:
    """Forget so many buyers one by one; return how long each took."""
    buyers = Order.objects.filter(state="paid").order_by("pk").values_list("buyer", flat=True)[:count]
    return [took_ms(forget_buyer, buyer, actor=SLUG, reason="asked for") for buyer in list(buyers)]


def retention_ms() -> list[float]:
    """Let all retired sales have ended long ago, and forget their buyers; return how long each step took.

    Raises LoadFailed when a buyer is left.
    """
    ended = timezone.now() - timedelta(days=settings.KEEP_ORDERS_DAYS + 1)
    Sale.objects.filter(retired_at__isnull=False).update(opens_at=ended - timedelta(hours=1), closes_at=ended)
    buyers, steps, is_last = PastBuyers(), [], False
    while not is_last:
        began = time.perf_counter()
        is_last = buyers.forget_some().is_last
        steps.append((time.perf_counter() - began) * 1000)
    left = Order.objects.filter(sale__retired_at__isnull=False).exclude(buyer__startswith=FORGOTTEN).count()
    if left:
        raise LoadFailed(f"{left:,} orders still name their buyers")
    return steps


BENCHMARK = Benchmark(
    title="The lists of staff with 100,000 orders: measured",
    packages=("django", "granian"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
)
