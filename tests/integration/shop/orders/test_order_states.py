"""An order changes its state along the arrows of one table only: code, database, scripts and docs hold the same one.
Uses the real database.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from django.db import Error, connection, transaction

from inventory.states import ALLOWED, FIRST_STATES, LIVE_STATES, RANK, WAITING_STATES, State
from shop.models import Order, OrderEvent
from shop.sales.catalogue import SaleCard
from tests.support.shopkeeping import make_sale

ROOT = Path(__file__).resolve().parents[4]
RANKS = re.compile(r"local rank = \{(.*)\}")
LIVES = re.compile(r"local live = \{(.*)\}")
ORDER_STATES = [state for state in State if state not in WAITING_STATES]


@pytest.fixture
def card(shop_database: None, new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale to have orders in."""
    return make_sale(new_sku(), units=1)


def order_in(card: SaleCard, state: State) -> Order:
    """Write an order that is in `state`, whatever brought it there."""
    order = Order.objects.create(
        request_id=f"{card.sku}-{state}",
        sale_id=card.sale_id,
        buyer="ann",
        quantity=1,
        buyer_limit=1,
        seq=1,
        state=state if state in FIRST_STATES else "held",
        hold_expires_at=card.closes_at,
        unit_price=card.price,
        currency=card.currency,
    )
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE shop_order DISABLE TRIGGER order_changes")
        Order.objects.filter(pk=order.pk).update(state=state)
        cursor.execute("ALTER TABLE shop_order ENABLE TRIGGER order_changes")
    return order


def is_refused(change: Callable[[], object]) -> bool:
    """Say whether the database refuses a change; it is undone either way."""
    try:
        with transaction.atomic():
            change()
            transaction.set_rollback(True)
    except Error:
        return True
    return False


@pytest.mark.parametrize(("was", "to"), list(product(ORDER_STATES, ORDER_STATES)))
def test_the_database_allows_what_the_table_allows(card: SaleCard, was: State, to: State) -> None:
    with transaction.atomic():
        order = order_in(card, was)
        refused = is_refused(lambda: Order.objects.filter(pk=order.pk).update(state=to))
        transaction.set_rollback(True)
    assert refused == (to is not was and not was.may_become(to))


@pytest.mark.parametrize("state", ORDER_STATES)
def test_an_order_begins_with_a_decision_about_the_line(card: SaleCard, state: State) -> None:
    values = {
        "request_id": f"{card.sku}-first",
        "sale_id": card.sale_id,
        "buyer": "ann",
        "quantity": 1,
        "buyer_limit": 1,
        "seq": 1,
        "hold_expires_at": card.closes_at,
        "unit_price": card.price,
        "currency": card.currency,
    }
    assert is_refused(lambda: Order.objects.create(state=state, **values)) == (state not in FIRST_STATES)


@pytest.mark.parametrize(
    "change",
    [{"quantity": 2}, {"buyer": "bob"}, {"seq": 2}, {"unit_price": 1}, {"currency": "CHF"}, {"request_id": "x"}],
)
def test_what_was_agreed_never_changes(card: SaleCard, change: dict[str, object]) -> None:
    with transaction.atomic():
        order = order_in(card, State.HELD)
        assert is_refused(lambda: Order.objects.filter(pk=order.pk).update(**change))
        transaction.set_rollback(True)


def test_orders_and_their_history_are_never_taken_back(card: SaleCard) -> None:
    with transaction.atomic():
        order = order_in(card, State.HELD)
        event = OrderEvent.objects.get(order=order)
        assert is_refused(lambda: Order.objects.filter(pk=order.pk)._raw_delete("default"))
        assert is_refused(lambda: OrderEvent.objects.filter(pk=event.pk).update(to_state="paid"))
        assert is_refused(lambda: OrderEvent.objects.filter(pk=event.pk).delete())
        assert is_refused(lambda: connection.cursor().execute("TRUNCATE shop_orderevent"))
        transaction.set_rollback(True)


def test_ranks_rise_along_every_arrow() -> None:
    for was, others in ALLOWED.items():
        for to in others - {State.WAITLISTED}:
            assert RANK[to] > RANK[was], (was, to)


def test_the_scripts_know_the_same_ranks_and_live_states() -> None:
    ranks = {state.letter: rank for state, rank in RANK.items()}
    lives = {state.letter for state in LIVE_STATES}
    scripts = [path.read_text() for path in (ROOT / "inventory" / "scripts").rglob("*.lua")]
    found = [match for text in scripts if (match := RANKS.search(text))]
    assert found
    for match in found:
        assert dict(re.findall(r"(\w) = (\d)", match[1])) == {letter: str(rank) for letter, rank in ranks.items()}
    for match in (match for text in scripts if (match := LIVES.search(text))):
        assert set(re.findall(r"(\w) = true", match[1])) == lives


def test_the_page_shows_the_table_and_every_arrow() -> None:
    page = (ROOT / "docs" / "orders.md").read_text()
    rows = dict(re.findall(r"^\| (\w+) \| ([\w, –]+) \|$", page, re.MULTILINE))
    arrows = set(re.findall(r"^    (\w+) --> (\w+)", page, re.MULTILINE))
    for state in State:
        others = sorted(ALLOWED[state])
        assert rows[state] == (", ".join(others) or "–")
        assert {to for was, to in arrows if was == state} == set(others)


def test_every_test_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "orders.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) >= 20
    for path, test in named:
        assert f"def {test or 'test_'}" in (ROOT / path).read_text(), (path, test)
