"""The list of orders: found by part of a number, buyer, address, state, sale and day; a page of it costs the same for
few orders and for 100,000; all of them leave as CSV in little memory. Real servers.
"""

from __future__ import annotations

import csv
import io
import time
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from secrets import token_hex
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from shop.models import Contact, Order, Sale, StaffAct
from shop.orders.numbers import order_number
from shop.sales.catalogue import SaleCard
from shop.staff.lists import order_export
from shop.staff.lists.csv_export import csv_parts
from shop.staff.lists.order_export import COLUMNS, export_rows
from tests.support import road
from tests.support.shopkeeping import make_sale
from tests.support.staff import browser_of, count_queries

pytestmark = pytest.mark.usefixtures("shop_database")

LIST, EXPORT = reverse("admin:shop_order_changelist"), reverse("admin:shop_order_export")
MANY = 100_000
# Of memory, so many orders and all of them: both are many pages.
SOME, MAX_MORE_BYTES, MAX_BYTES = 5_000, 1024 * 1024, 50 * 1024 * 1024
# Decided without units, as nearly all orders of a flood are.
WRITE_MANY = """
INSERT INTO shop_order (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, reason, unit_price, currency,
                        decided_at)
SELECT %(tag)s || number, %(sale_id)s, %(tag)s || 'buyer-' || number %% 1000, 1, 1, number,
       (ARRAY['sold_out', 'refused', 'cancelled'])[1 + number %% 3], '', 15, 'EUR',
       clock_timestamp() - make_interval(days => 2, secs => number)
FROM generate_series(1, %(count)s) AS number
"""


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3)


@pytest.fixture
def viewer() -> Client:
    return browser_of("viewer")


def held(card: SaleCard, *buyers: str) -> list[Order]:
    names = road.queue(card, *buyers)
    road.settle_line(card)
    return [Order.objects.get(request_id=name) for name in names]


def write_many(card: SaleCard, *, count: int, tag: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(WRITE_MANY, {"tag": tag, "sale_id": card.sale_id, "count": count})
        cursor.execute("ANALYZE shop_order")


def found(browser: Client, **query: Any) -> list[int]:
    answer = browser.get(LIST, query)
    assert answer.status_code == 200
    return [each.pk for each in answer.context["cl"].result_list]


def rows_of(answer: Any) -> list[list[str]]:
    text = b"".join(answer.streaming_content).decode()
    return list(csv.reader(io.StringIO(text, newline="")))


def test_an_order_is_found_by_every_part_of_its_number_and_buyer(viewer: Client, card: SaleCard) -> None:
    tag = token_hex(8).translate(str.maketrans("0123456789", "ghijklmnop"))  # a digit could be of the number
    first, second = held(card, f"ann-{tag}", f"bob-{tag}")
    number = order_number(first.pk)
    digits = number.split("-")[1]
    only_here = {"sale__id__exact": card.sale_id}
    for part in (number, digits, f"FD-{digits}", f"fd {digits}", digits[-3:], f"{digits[-2:]}{number[-2:]}"):
        assert first.pk in found(viewer, q=part, **only_here), part
    assert found(viewer, q=f"{digits}{number[-1]}", **only_here) == [first.pk]
    assert found(viewer, q=f"nn-{tag}") == [first.pk]
    assert found(viewer, q=tag) == [second.pk, first.pk]
    assert found(viewer, q=second.request_id) == [second.pk]
    for nothing in ("FD-", "%", "_", f"{tag}x", "9" * 30, "'; --"):
        assert found(viewer, q=nothing, **only_here) == [], nothing


def test_an_address_finds_its_order_only_with_the_right_and_is_never_shown(card: SaleCard) -> None:
    order, _ = held(card, f"ann-{card.sku}", f"bob-{card.sku}")
    address = f"Ann.{token_hex(4)}@example.com"
    Contact.objects.create(request_id=order.request_id, address=address)
    operator = browser_of("operator")
    assert found(operator, q=address.upper()) == [order.pk]
    assert found(operator, q=address[1:]) == []  # never a part of one: nobody browses addresses
    shown = operator.get(LIST, {"q": order.request_id}).content.decode()
    assert order_number(order.pk) in shown
    assert address not in shown
    assert browser_of("viewer").get(LIST, {"q": address}).status_code == 403
    assert address not in str(rows_of(operator.get(EXPORT, {"q": address})))


def test_filters_by_state_sale_and_day(viewer: Client, card: SaleCard) -> None:
    order, other = held(card, f"ann-{card.sku}", f"bob-{card.sku}")
    here = {"sale__id__exact": card.sale_id}
    today = order.decided_at.date()
    assert found(viewer, **here) == [other.pk, order.pk]
    assert found(viewer, **here, state__exact="held") == [other.pk, order.pk]
    assert found(viewer, **here, state__exact="paid") == []
    assert found(viewer, **here, from_day=today, until_day=today) == [other.pk, order.pk]
    assert found(viewer, **here, from_day=today + timedelta(days=1)) == []
    assert found(viewer, **here, until_day=today - timedelta(days=1)) == []
    assert found(viewer, **here, until_day="9999-12-31", from_day="0001-01-01") == [other.pk, order.pk]
    assert found(viewer, sale__id__exact="nonsense") == []


@pytest.mark.parametrize("typed", ["yesterday", "2026-13-01", "31.12.2026"])
def test_a_wrong_day_is_said_and_finds_nothing(viewer: Client, card: SaleCard, typed: str) -> None:
    held(card, f"ann-{card.sku}")
    answer = viewer.get(LIST, {"from_day": typed})
    assert "A day is written like 2026-12-31" in answer.content.decode()
    assert answer.context["cl"].result_count == 0
    assert viewer.get(EXPORT, {"from_day": typed}).status_code == 302


@pytest.mark.parametrize("query", [{"buyer__regex": "("}, {"sale__id__exact": "9" * 5_000}])
def test_a_filter_that_makes_no_sense_is_refused_and_is_no_fault(
    viewer: Client, card: SaleCard, query: dict[str, str]
) -> None:
    held(card, f"ann-{card.sku}")  # a pattern is read only where there is a row
    assert [viewer.get(page, query).status_code for page in (LIST, EXPORT)] == [400, 400]


def test_the_export_is_what_the_list_shows(viewer: Client, card: SaleCard) -> None:
    order, other = held(card, f"ann-{card.sku}", f"bob-{card.sku}")
    answer = viewer.get(EXPORT, {"sale__id__exact": card.sale_id})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    head, *rows = rows_of(answer)
    assert tuple(head) == COLUMNS
    assert [row[:2] for row in rows] == [[order_number(each.pk), each.request_id] for each in (other, order)]
    (row,) = rows_of(viewer.get(EXPORT, {"q": order.buyer}))[1:]
    assert dict(zip(head, row, strict=True)) | {"decided_at": "", "changed_at": ""} == {
        "order_number": order_number(order.pk), "request_id": order.request_id, "sale": card.slug,
        "buyer": order.buyer, "state": "held", "units": "1", "unit_price": "15.00", "amount": "15.00",
        "currency": "EUR", "decided_at": "", "changed_at": "", "changed_by": "settler", "reason": "",
    }  # fmt: skip
    user = str(viewer.session["_auth_user_id"])
    assert StaffAct.objects.filter(act="export_orders", actor__startswith="viewer-").exists(), user


def test_pages_of_the_export_meet_without_a_gap(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = token_hex(4)
    write_many(card, count=25, tag=tag)
    orders = Order.objects.filter(sale_id=card.sale_id)
    want = list(orders.order_by("-pk").values_list("request_id", flat=True))
    for page in (1, 5, 24, 25, 26):
        monkeypatch.setattr(order_export, "PAGE_ROWS", page)
        assert [row[1] for row in export_rows(orders)] == want, page


def test_nobody_without_the_right_exports(card: SaleCard) -> None:
    assert browser_of("none").get(EXPORT).status_code == 403
    assert Client().get(EXPORT).status_code == 302


def measured(browser: Client, query: dict[str, Any]) -> int:
    """Return the queries of a page, and print how long it took."""
    began = time.perf_counter()
    count = count_queries(lambda: found(browser, **query))
    print(f"{query}: {1000 * (time.perf_counter() - began):.0f} ms, {count} queries")
    return count


def test_100_000_orders_cost_a_page_no_query_more_and_leave_in_little_memory(viewer: Client, card: SaleCard) -> None:
    tag = token_hex(4)
    held(card, f"{tag}buyer-ann")
    today = timezone.now().date()
    queries: list[dict[str, Any]] = [
        {}, {"state__exact": "refused"}, {"q": f"{tag}buyer"}, {"q": "1234"},
        {"sale__id__exact": card.sale_id, "p": 900},
        {"from_day": today - timedelta(days=5), "until_day": today}, {"sale__id__exact": card.sale_id},
    ]  # fmt: skip
    measured(viewer, {})
    few = [measured(viewer, query) for query in queries]
    write_many(card, count=MANY, tag=tag)
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    assert [measured(viewer, query) for query in queries] == few
    began = time.perf_counter()
    answer: Any = viewer.get(EXPORT, {"sale__id__exact": card.sale_id})
    lines = size = 0
    for part in answer.streaming_content:
        lines, size = lines + part.count(b"\r\n"), size + len(part)
    print(f"{MANY} orders as CSV: {size:,} bytes in {time.perf_counter() - began:.1f} s")
    assert lines == MANY + 2
    few_bytes, many_bytes = (peak_memory(card, count=count) for count in (SOME, MANY))
    print(f"memory: {few_bytes:,} bytes for {SOME} orders, {many_bytes:,} for {MANY}")
    assert many_bytes < min(few_bytes + MAX_MORE_BYTES, MAX_BYTES)


def peak_memory(card: SaleCard, *, count: int) -> int:
    """Return how much memory the export of so many orders takes at most; each page of them must be one query."""
    ids = Order.objects.filter(sale_id=card.sale_id).order_by("pk").values_list("pk", flat=True)
    orders = Order.objects.filter(sale_id=card.sale_id, pk__lte=ids[count - 1])

    def export() -> None:
        for _part in csv_parts(COLUMNS, export_rows(orders)):
            pass

    tracemalloc.start()
    try:
        assert count_queries(export) == count // order_export.PAGE_ROWS + 1
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_control_an_export_that_keeps_its_rows_takes_far_more(card: SaleCard) -> None:
    write_many(card, count=4 * SOME, tag=token_hex(4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_export, "PAGE_ROWS", 10 * SOME)
        assert peak_memory(card, count=4 * SOME) > peak_memory(card, count=SOME) + MAX_MORE_BYTES
