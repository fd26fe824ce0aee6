"""Units come back while people stand by, new ones ask, and two settlers work: nobody is served out of turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from inventory.line.admission import Code
from shop.models import Order
from shop.orders import holds
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.races.crowd import at_once, line_is_empty, two_settlers
from tests.support.road import admit, ask, queue, settle_line
from tests.support.shopkeeping import assert_books_balance, audit_of, close_sale, make_sale, pay, rewrite
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
STANDING, BACK, ROUNDS = 12, 6, 25


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale whose only unit is paid for."""
    made = make_sale(new_sku(), units=1, limit=2)
    names = queue(made, "the-first")
    settle_line(made)
    pay(*names)
    return made


def stand_by(card: SaleCard) -> list[str]:
    """Let some stand by, each third for two units; return their requests, the first first."""
    asks = [ask(card, f"standing-{n}", quantity=2 if n % 3 == 2 else 1, standby=True) for n in range(STANDING)]
    assert {answer.code for answer in admit(card, *asks)} == {Code.ON_STANDBY}
    return [each.request_id for each in asks]


def come_and_go(card: SaleCard, place: int) -> list[str]:
    """Let a unit come back six times, or ask again and again as somebody new; return who was let in."""
    try:
        if place == 0:
            for _ in range(BACK):
                sale_control.restock(card.slug, units=1, actor="olga")
            return []
        asks = [ask(card, f"new-{place}-{number}", standby=place == 1) for number in range(ROUNDS)]
        return [each.request_id for each in asks if admit(card, each)[0].code in (Code.ADMITTED, Code.ON_STANDBY)]
    finally:
        connection.close()


def test_those_on_standby_get_what_comes_back_before_anybody_new(card: SaleCard) -> None:
    """Who is new and takes standby is after them; who is new and does not is not let in at all."""
    names = stand_by(card)
    with two_settlers(batch=2):
        *_, standing, refused, others = at_once(lambda place: come_and_go(card, place), 4)
        assert (refused, others) == ([], [])
        wait_until(lambda: units_held(card) == BACK)
    held = list(Order.objects.filter(sale_id=card.sale_id, state="held").values_list("request_id", flat=True))
    assert set(held) <= set(names)
    assert not set(held) & set(standing)
    assert_books_balance(card)
    close_sale(card)
    settle_line(card)
    assert line_is_empty(card)
    assert_books_balance(card)


def units_held(card: SaleCard) -> int:
    return sum(Order.objects.filter(sale_id=card.sale_id, state="held").values_list("quantity", flat=True))


def test_a_turn_that_was_not_kept_would_be_seen(card: SaleCard) -> None:
    """The control: the last on standby has the seq of one before all others."""
    names = stand_by(card)
    sale_control.restock(card.slug, units=3, actor="olga")
    settle_line(card)
    first, second = names[:2]
    assert Order.objects.filter(request_id__in=(first, second), state="held").count() == 2
    rewrite(second, seq=Order.objects.get(request_id=first).seq - 1)
    assert {each["id"] for each in audit_of(card)["invariants"] if not each["ok"]} == {"I8"}
    assert holds.cancel(first, buyer="standing-0") == "cancelled"
