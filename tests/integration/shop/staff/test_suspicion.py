"""The clusters of a sale: what has a network, a moment, a card or a mailbox in common is counted and named; voiding
gives money and units back, and the public log says why in a word. Real servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from inventory import redis
from inventory.line import admission
from inventory.line.admission import Code, SaleLine
from inventory.models import Stock
from inventory.redis import keys
from shop.client_address import network_mark
from shop.models import Contact, Order, Payment, Sale, StaffAct
from shop.orders import marks
from shop.payments import notices
from shop.payments.providers import Notice
from shop.salelog.words import VOIDED
from shop.sales.catalogue import SaleCard
from shop.staff.lists.bulk_acts import BulkReason
from shop.staff.suspicion.clusters import BURST_MS, MAX_ORDERS, Cluster, Kind, find_clusters, unknown_networks
from tests.support.road import ask, settle_line
from tests.support.sale_logs import checked
from tests.support.shopkeeping import assert_books_balance, make_sale, pay
from tests.support.staff import browser_of

pytestmark = pytest.mark.usefixtures("shop_database")

HOME, SCHOOL = "192.0.2", "198.51.100"


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=20)


def bought(card: SaleCard, *presses: tuple[str, str]) -> list[Order]:
    """Let each buyer press from a network, in one instant; return the orders, all held. presses: network and buyer."""
    asks = [ask(card, f"{buyer}-{card.sku}")._replace(network=network) for network, buyer in presses]
    answers = admission.admit(redis.connect(), SaleLine(card.sale_id, card.sku), asks)
    assert {answer.code for answer in answers} == {Code.ADMITTED}
    settle_line(card)
    found = {order.request_id: order for order in Order.objects.filter(sale_id=card.sale_id)}
    return [found[each.request_id] for each in asks]


def page(card: SaleCard) -> str:
    return reverse("admin:shop_sale_suspicion", args=[card.sale_id])


def ids(orders: list[Order]) -> list[int]:
    return [order.pk for order in orders]


def only(card: SaleCard, kind: Kind) -> Cluster:
    (found,) = find_clusters(card.sale_id, kind)
    return found


@pytest.mark.parametrize("limit", [10, 0])
def test_an_order_keeps_the_mark_of_its_network_and_redis_forgets_it(new_sku: Callable[[], str], limit: int) -> None:
    """Also where no network is counted. Only an order that got units does."""
    card = make_sale(new_sku(), units=1)
    asks = [ask(card, f"{name}-{card.sku}")._replace(network=HOME) for name in ("ann", "bob")]
    admission.admit(redis.connect(), SaleLine(card.sale_id, card.sku, limit), asks)
    settle_line(card)
    pay(asks[0].request_id)
    settle_line(card)
    found = Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("state", "network")
    assert list(found) == [("paid", network_mark(HOME)), ("sold_out", "")]
    records = redis.run_commands(redis.connect(), [("HVALS", keys.records(card.sku))])[0]
    assert not [text for text in records if HOME in text]
    assert_books_balance(card)


def test_orders_of_one_network_are_a_cluster_and_a_pair_is_none(card: SaleCard) -> None:
    of_school = ((SCHOOL, "bob"), (SCHOOL, "joe"))
    orders = bought(card, (HOME, "ann"), *of_school, (HOME, "eve"), (HOME, "dan"), ("", "old"))
    home = [order for order in orders if order.network == network_mark(HOME)]
    pay(home[0].request_id)
    found = only(card, Kind.NETWORK)
    assert (found.mark, found.orders, found.buyers, found.held, found.paid) == (network_mark(HOME), 3, 3, 2, 1)
    assert list(found.order_ids) == ids(home)
    assert unknown_networks(card.sale_id) == 1


def test_a_burst_ends_where_people_could_have_pressed(card: SaleCard) -> None:
    step_us = BURST_MS * 1000
    moments = [0, 3 * step_us, 4 * step_us, 5 * step_us, 6 * step_us + 1, 8 * step_us]
    orders = [
        Order.objects.create(
            request_id=f"{number}-{card.sku}", sale_id=card.sale_id, buyer=f"pupil-{number}", quantity=1, buyer_limit=1,
            seq=1 + moment, state="refused", unit_price=card.price, currency=card.currency, network=network_mark(HOME),
        )
        for number, moment in enumerate(moments)
    ]  # fmt: skip
    found = only(card, Kind.TIMING)
    assert (list(found.order_ids), found.span_ms) == (ids(orders[1:4]), 2 * BURST_MS)


def test_one_card_of_two_buyers_and_one_mailbox_of_two_are_clusters(card: SaleCard) -> None:
    orders = bought(card, *((SCHOOL, name) for name in ("ann", "bob", "eve")))
    for order, fingerprint in zip(orders, ("one", "one", "other"), strict=True):
        payment = notices.begin(order, provider_name="sandbox")
        paid = Notice(
            payment.reference,
            "captured",
            payment.reference,
            payment.amount,
            payment.currency,
            f"{fingerprint}-{card.sku}",
        )
        assert notices.take_notice(paid, provider_name="sandbox") == "paid"
    for order, address in zip(orders, ("a.Nn@example.org", "ann+2@Example.org", "eve@example.org"), strict=True):
        Contact.objects.create(request_id=order.request_id, address=address)
    for kind, mark in ((Kind.CARD, ""), (Kind.MAIL, "example.org")):
        found = only(card, kind)
        assert (found.mark, list(found.order_ids), found.paid) == (mark, ids(orders[:2]), 2)


@pytest.mark.parametrize("role", ["viewer", "operator", "manager"])
def test_only_who_may_void_may_look(card: SaleCard, role: str) -> None:
    answer = browser_of(role).get(page(card))
    assert answer.status_code == (200 if role == "manager" else 403)
    room = browser_of(role).get(reverse("admin:shop_sale_room", args=[card.sale_id])).content.decode()
    assert (page(card) in room) == (role == "manager")


def test_the_page_names_orders_and_shows_no_address_and_no_score(card: SaleCard) -> None:
    orders = bought(card, *((HOME, f"pupil-{number}") for number in range(3)))
    for order in orders:
        Contact.objects.create(request_id=order.request_id, address="somebody@example.org")
    shown = browser_of("manager").get(page(card)).content.decode()
    assert all(f'value="{order.pk}" checked' in shown for order in orders)
    assert network_mark(HOME) in shown
    assert HOME not in shown
    assert "somebody" not in shown
    assert "score" not in shown.lower()


def void(manager: Client, orders: list[Order], /, **values: Any) -> Any:
    return manager.post(reverse("admin:shop_order_bulk", args=["void"]), {"orders": ids(orders)} | values)


def test_voiding_shows_first_and_then_gives_money_and_units_back(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=3)
    manager = browser_of("manager")
    orders = bought(card, *((HOME, f"robber-{number}") for number in range(3)))
    pay(orders[0].request_id)
    waits = ask(card, f"next-{card.sku}")
    assert admission.admit(redis.connect(), SaleLine(card.sale_id, card.sku), [waits])[0].code == Code.ADMITTED
    seen = void(manager, orders)
    assert "What will happen" in seen.content.decode()
    assert "This field is required" not in seen.content.decode()
    assert set(Order.objects.filter(pk__in=ids(orders)).values_list("state", flat=True)) == {"paid", "held"}
    form = {"orders": ",".join(map(str, ids(orders))), "why": BulkReason.SUSPECTED_FRAUD.value, "note": "one script"}
    done = void(manager, orders, **form)
    assert len(done.context["done"]) == 3
    assert list(Order.objects.filter(pk__in=ids(orders)).order_by("pk").values_list("state", flat=True)) == [
        "refunded", "cancelled", "cancelled",
    ]  # fmt: skip
    assert Payment.objects.get(order=orders[0]).state == Payment.State.REFUND_DUE
    settle_line(card)
    assert Order.objects.get(request_id=waits.request_id).state == "held"  # the next in line got a unit
    assert Stock.objects.get(sku=card.sku).available == 2
    assert StaffAct.objects.filter(sale_id=card.sale_id, act="void_order").count() == 3
    with connection.cursor() as cursor:
        cursor.execute("SELECT act, role, reason FROM salelog_lineevent WHERE sale_id = %s", [card.sale_id])
        assert [row for row in cursor.fetchall() if row[0] == "void_order"] == [
            ("void_order", "staff", "suspected_fraud")
        ] * 3
    assert +checked(card).replay.voided == {"suspected_fraud": 3}
    shown = Client().get(reverse("sale-log", args=[card.slug])).content.decode()
    assert 'data-fact="voided"' in shown
    assert 'data-word="void_suspected_fraud">Suspected fraud<' in shown
    assert_books_balance(card)


def test_what_staff_write_of_one_order_is_not_in_the_public_log_as_its_page_says(card: SaleCard) -> None:
    (order,) = bought(card, (HOME, "robber"))
    manager, act = browser_of("manager"), reverse("admin:shop_order_act", args=[order.pk, "void"])
    assert "The public log counts it, without what you write." in manager.get(act).content.decode()
    assert manager.post(act, {"reason": "one script, by Eve"}).status_code == 302
    with connection.cursor() as cursor:
        cursor.execute("SELECT act, reason FROM salelog_lineevent WHERE sale_id = %s", [card.sale_id])
        assert ("void_order", "given") in cursor.fetchall()


def test_a_public_log_has_words_for_each_reason_that_staff_may_choose() -> None:
    words = {name.removeprefix("void_"): str(text) for name, text in VOIDED.items()}
    assert words == {each.value: str(each.label) for each in BulkReason} | {
        "given": "Another reason",
        "none": "No reason",
    }


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_nobody_voids_without_the_right(card: SaleCard, role: str) -> None:
    orders = bought(card, (HOME, "ann"))
    assert void(browser_of(role), orders).status_code == 403
    assert void(browser_of(role), orders, why="faulty", note="").status_code == 403


def test_marks_go_with_their_time_and_nothing_else_changes(card: SaleCard) -> None:
    """The control is a sale that ended a day too late."""
    (order,) = bought(card, (HOME, "ann"))
    payment = notices.begin(order, provider_name="sandbox")
    Payment.objects.filter(pk=payment.pk).update(card="fingerprint")
    kept = timedelta(days=settings.KEEP_ADDRESSES_DAYS)
    for age, mark, fingerprint in ((kept - timedelta(days=1), network_mark(HOME), "fingerprint"), (kept, "", "")):
        ended = timezone.now() - age - timedelta(minutes=1)
        Sale.objects.filter(pk=card.sale_id).update(opens_at=ended - timedelta(hours=1), closes_at=ended)
        Payment.objects.filter(pk=payment.pk).update(created_at=ended)
        while any(marks.delete_old()):
            pass
        order.refresh_from_db()
        payment.refresh_from_db()
        assert (order.network, payment.card, order.state) == (mark, fingerprint, "held")


def test_the_largest_cluster_can_be_voided_as_its_page_sends_it(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=MAX_ORDERS, line_capacity=MAX_ORDERS)
    bought(card, *((HOME, f"pupil-{number}") for number in range(MAX_ORDERS)))
    manager = browser_of("manager")
    form = manager.get(page(card)).content.decode().split('<details class="cluster">')[1].split("</form>")[0]
    boxes = re.findall(r'name="orders" value="(\d+)" checked', form)
    assert len(boxes) == MAX_ORDERS
    # With the longest ids: Django counts the fields, and bounds the body.
    sent = [("csrfmiddlewaretoken", "t" * 64), *(("orders", each.rjust(18, "0")) for each in boxes)]
    path, kind = reverse("admin:shop_order_bulk", args=["void"]), "application/x-www-form-urlencoded"
    answer = manager.post(path, urlencode(sent), content_type=kind)
    assert answer.status_code == 200
    assert len(answer.context["plan"].able) == MAX_ORDERS
