"""Proves the page of everything a buyer has: every state, newest first, nobody else's, and quick among a million."""

from __future__ import annotations

import html
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models.query import QuerySet
from django.test import Client
from django.utils import timezone

from inventory import redis
from inventory.records import Ticket, sign_ticket
from inventory.redis import keys
from shop import buyers
from shop.models import HAS_UNITS, Order, Sale
from shop.orders import holds
from shop.orders.numbers import order_number
from shop.payments import refunds
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from shop.web.my_tickets import ORDERS_PER_PAGE
from tests.integration.shop.web.test_pages import key_in
from tests.support import road
from tests.support.query_plans import pages_read
from tests.support.shopkeeping import let_holds_end, make_sale, pay

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
# A million takes a minute to write: MY_TICKETS_ORDERS=1000000.
MAX_ASKED = 10
PRICE = re.compile(r"€[\d.,]+")
PAST_ORDERS = int(os.environ.get("MY_TICKETS_ORDERS", "100000"))
MAX_MS = 50
OWN_ORDERS = 50
# Others' are of a thousand sales: of a few, PostgreSQL may skip through the index by sale and buyer as quickly.
MANY_ORDERS = """
INSERT INTO shop_order (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, reason, unit_price, currency,
                        hold_expires_at)
SELECT to_hex(%(sale_id)s) || '-' || md5(%(buyer)s || n),
       %(sale_id)s + CASE WHEN n %% (%(count)s / %(own)s) = 0 THEN 0 ELSE n %% 1000 END,
       CASE WHEN n %% (%(count)s / %(own)s) = 0 THEN %(buyer)s ELSE md5(n::text) END, 1, 1, n,
       CASE WHEN n %% 10 < 6 THEN 'paid' ELSE 'sold_out' END, '', 15, 'EUR', now()
FROM generate_series(1, %(count)s) n
"""


class Visitor:
    """A browser with a buyer."""

    def __init__(self) -> None:
        self.buyer, token = buyers.issue_buyer()
        self.client = Client(headers={"sec-fetch-site": "same-origin"})
        self.client.cookies[buyers.COOKIE_NAME] = token

    def ask(self, card: SaleCard) -> str:
        """Press the button of the sale page; return the request id."""
        page = f"/sales/{card.slug}/"
        answer = self.client.post(page, {"quantity": "1", "idempotency_key": key_in(self.client.get(page))})
        assert answer.status_code == 303
        return answer["Location"].split("/")[2]

    def tickets(self, page: str = "") -> str:
        answer = self.client.get(f"/tickets/{page}")
        assert answer.status_code == 200
        return html.unescape(answer.content.decode())

    def chip(self, request_id: str) -> str:
        """Return the state that the page shows for a request."""
        row = self.tickets().partition(f"/requests/{request_id}/")[2]
        return row.partition('class="chip ')[2].partition('"')[0]


@pytest.fixture
def new_card(new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    return lambda units=1, **terms: make_sale(new_sku(), units=units, **terms)


def test_every_state_is_listed_with_its_link_and_the_newest_first(new_card: Callable[..., SaleCard]) -> None:
    person, names = Visitor(), {}
    for state in ("refunded", "expired", "cancelled", "paid", "held"):
        card = new_card()
        names[state] = person.ask(card)
        road.settle_line(card)
        if state in ("paid", "refunded"):
            pay(names[state])
    let_holds_end(names["expired"])
    with transaction.atomic(), connection.cursor() as cursor:
        sku = Order.objects.get(request_id=names["expired"]).sale.stock.sku
        changes = holds.expire_due(cursor, sku=sku, request_ids=[names["expired"]])
    holds.publish(changes)
    holds.cancel(names["cancelled"], buyer=person.buyer)
    refunds.refund_order(names["refunded"], actor="anna", reason="broken")
    full = new_card()
    (holder,) = road.queue(full, "holder-0000000000000000")
    names["sold_out"] = person.ask(full)
    road.settle_line(full)
    pay(holder)
    road.settle_line(full)
    names["queued"] = person.ask(new_card())
    assert {state: person.chip(name) for state, name in names.items()} == {state: state for state in names}
    places = [person.tickets().index(names[state]) for state in ("held", "paid", "cancelled", "expired", "refunded")]
    assert places == sorted(places)
    assert order_number(Order.objects.get(request_id=names["paid"]).pk) in person.tickets()


@pytest.mark.parametrize("price", ["5.00", "25.00"])
def test_those_who_wait_are_shown_the_price_they_were_promised(new_card: Callable[..., SaleCard], price: str) -> None:
    """The control is somebody who asks after the change."""
    card = new_card(units=2)
    early, late = Visitor(), Visitor()
    name = early.ask(card)
    sale_control.change_terms(card.slug, actor="olga", price=Decimal(price))
    late_name = late.ask(card)

    def prices(person: Visitor, name: str) -> tuple[set[str], set[str]]:
        page = html.unescape(person.client.get(f"/requests/{name}/").content.decode())
        return set(PRICE.findall(page)), set(PRICE.findall(person.tickets()))

    promised, changed = ({"€15.00"}, {"€15.00"}), ({f"€{price}"}, {f"€{price}"})
    assert (prices(early, name), prices(late, late_name)) == (promised, changed)
    road.settle_line(card)
    assert (prices(early, name), prices(late, late_name)) == (promised, changed)


def test_a_look_at_tickets_alone_renews_the_token(
    new_card: Callable[..., SaleCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is a young token, and a reader without one."""
    person, today = Visitor(), buyers.today()
    paths = ["/tickets/", f"/requests/{person.ask(new_card())}/", "/requests/2a-none/"]

    def given(token: str) -> list[str]:
        cookies = [Client(headers={"cookie": f"{buyers.COOKIE_NAME}={token}"}).get(path).cookies for path in paths]
        return [found[buyers.COOKIE_NAME].value for found in cookies if buyers.COOKIE_NAME in found]

    young = buyers.token_of(person.buyer, mark="0123456789ab")
    monkeypatch.setattr(buyers, "today", lambda: today - settings.BUYER_DAYS // 2 - 1)
    old = buyers.token_of(person.buyer, mark="0123456789ab")
    monkeypatch.setattr(buyers, "today", lambda: today)
    assert (given(old), given(young), given("")) == ([young] * len(paths), [], [])


def test_who_asks_often_keeps_few_cookies(new_card: Callable[..., SaleCard]) -> None:
    """Each is sent with every look at the page, and a browser that sends too much is refused it."""
    person, card = Visitor(), new_card()
    names = [person.ask(card)]

    def kept() -> int:
        return sum(name.startswith("asked-") for name in person.client.cookies)

    again = {"quantity": "1", "idempotency_key": "first-press"}  # the same press takes no room
    assert (person.client.post(f"/sales/{card.slug}/", again).status_code, kept()) == (303, 1)
    names += [person.ask(new_card()) for _ in range(MAX_ASKED - 1)]
    text = person.tickets()
    assert (kept(), [name in text for name in names]) == (MAX_ASKED, [True] * MAX_ASKED)
    names += [person.ask(new_card()) for _ in range(2)]
    text = person.tickets()
    assert (kept(), [name in text for name in names]) == (MAX_ASKED, [False] * 2 + [True] * MAX_ASKED)
    person.client.cookies["asked"] = "a forged one"
    names.append(person.ask(new_card()))
    assert (kept(), names[-1] in person.tickets()) == (MAX_ASKED, True)


def test_what_was_asked_for_is_listed_as_long_as_its_ticket_is_kept(new_card: Callable[..., SaleCard]) -> None:
    """The control is a request of which there is nothing any more: of a buyer who was forgotten, of an emptied shop."""
    person, card = Visitor(), new_card()
    (holder,) = road.queue(card, "holder-0000000000000000")
    name = person.ask(card)
    kept = person.client.cookies
    assert kept["asked-0"]["max-age"] == kept["ticket"]["max-age"] == settings.BUYER_DAYS * 86_400
    road.settle_line(card)
    pay(holder)
    road.settle_line(card)
    assert person.chip(name) == "sold_out"
    Order.objects.filter(request_id=name).update(buyer="gone-0123456789abcdef")
    gone = Ticket(f"{2**40:x}-{name.partition('-')[2]}", person.buyer, 1, 5, 1, 1)
    kept["asked-1"] = sign_ticket(buyers.ticket_signer(), gone)
    assert "There is nothing here" in person.tickets()


def test_nobody_sees_what_is_another_buyers(new_card: Callable[..., SaleCard]) -> None:
    person, other, card = Visitor(), Visitor(), new_card()
    held = person.ask(card)
    road.settle_line(card)
    queued = person.ask(new_card())
    # The cookies that name what was asked for, in a browser of another buyer.
    for name, value in person.client.cookies.items():
        if name.startswith("asked-"):
            other.client.cookies[name] = value.value
    for client in (other.client, Client()):
        text = client.get("/tickets/").content.decode()
        assert (held in text, queued in text, "There is nothing here" in text) == (False, False, True)
    assert (held in person.tickets(), queued in person.tickets()) == (True, True)


def test_a_forged_cookie_lists_nothing() -> None:
    person = Visitor()
    person.client.cookies[f"asked-2a-{'b' * 22}"] = f"2a-{'b' * 22}.{person.buyer}.1.5.{'c' * 22}"
    assert "There is nothing here" in person.tickets()


def test_a_place_that_the_line_has_lost_is_brought_back(new_card: Callable[..., SaleCard]) -> None:
    person, card = Visitor(), new_card()
    name = person.ask(card)
    redis.run_commands(redis.connect(), [("UNLINK", *keys.all_of(card.sku))])
    assert person.chip(name) == "queued"
    road.settle_line(card)
    assert person.chip(name) == "held"


def test_a_retired_sale_is_listed_and_redis_is_not_asked(new_card: Callable[..., SaleCard]) -> None:
    person, card = Visitor(), new_card()
    name = person.ask(card)
    road.settle_line(card)
    pay(name)
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    assert person.chip(name) == "paid"


def test_every_page_leads_there(new_card: Callable[..., SaleCard]) -> None:
    person, card = Visitor(), new_card()
    name = person.ask(card)
    for path in ("/", f"/sales/{card.slug}/", f"/requests/{name}/", "/past/"):
        assert 'href="/tickets/"' in person.client.get(path).content.decode(), path
    person.client.cookies["language"] = "zh-hans"
    assert "我的票" in person.tickets()


@pytest.fixture
def person_with_a_past(new_card: Callable[..., SaleCard]) -> Iterator[Visitor]:
    """A buyer with paid orders among those of all others; nothing of it is kept."""
    person, card = Visitor(), new_card()
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    with transaction.atomic(), connection.cursor() as cursor:
        # Their history is of no use here, and would take as long again.
        cursor.execute("ALTER TABLE shop_order DISABLE TRIGGER USER")
        cursor.execute(
            MANY_ORDERS, {"sale_id": card.sale_id, "buyer": person.buyer, "count": PAST_ORDERS, "own": OWN_ORDERS}
        )
        cursor.execute("ANALYZE shop_order")
        yield person
        transaction.set_rollback(True)


def orders_of_the_page(person: Visitor) -> QuerySet[Order]:
    """Return what the first page reads."""
    return Order.objects.filter(HAS_UNITS, buyer=person.buyer).order_by("-id")[: ORDERS_PER_PAGE + 1]


def test_among_many_orders_of_others_the_page_is_quick(person_with_a_past: Visitor) -> None:
    assert "order_with_units_by_buyer" in orders_of_the_page(person_with_a_past).explain()
    took, spent = [], []
    for _ in range(20):
        began, began_cpu = time.perf_counter(), time.thread_time()
        text = person_with_a_past.tickets()
        took.append((time.perf_counter() - began) * 1000)
        spent.append((time.thread_time() - began_cpu) * 1000)
    assert text.count('class="chip paid"') == ORDERS_PER_PAGE
    assert 'href="?page=2"' in text
    last = person_with_a_past.tickets("?page=3")
    assert (last.count('class="chip paid"'), 'href="?page=4"' in last) == (OWN_ORDERS - 2 * ORDERS_PER_PAGE, False)
    # What others take of the machine is not counted: CPU time here, and below how much the database reads.
    assert min(spent) <= MAX_MS, spent
    assert pages_read(orders_of_the_page(person_with_a_past)) <= 3 * OWN_ORDERS
    print(f"{PAST_ORDERS} orders: median {statistics.median(took):.1f} ms, of it {statistics.median(spent):.1f} here")


def test_without_the_index_every_order_would_be_read(person_with_a_past: Visitor) -> None:
    """The control of the bound on pages; by which plan they are read, the planner decides."""
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX order_with_units_by_buyer")
    assert pages_read(orders_of_the_page(person_with_a_past)) > 3 * OWN_ORDERS
