"""A pass lets in one request, by the script that admits. Each test has a SKU of its own, on each kind of Redis."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inventory import redis
from inventory.line import admission
from inventory.line.admission import NO_PASS, Answer, Code, SaleLine
from inventory.redis import keys
from shop.sales.catalogue import SaleCard
from tests.support.road import ask, run, settle_line, snapshot
from tests.support.shopkeeping import assert_books_balance, make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
KNOWN_QUEUED = Code.KNOWN_BEFORE + ord("q")


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of six units, three a buyer."""
    return make_sale(new_sku(), units=6, limit=3, line_capacity=0)


def press(card: SaleCard, *presses: tuple[str, str]) -> list[Answer]:
    """Ask in one call; presses: the key of the request, all of them Ann's, and its pass."""
    asks = [ask(card, "ann", key=key)._replace(pass_id=pass_id) for key, pass_id in presses]
    return admission.admit(redis.connect(), SaleLine(card.sale_id, card.sku), asks)


def codes(answers: list[Answer]) -> list[int]:
    return [answer.code for answer in answers]


@pytest.mark.parametrize("pass_id", ["first", ""])
def test_a_pass_lets_in_one_request(card: SaleCard, pass_id: str) -> None:
    """The control is a sale that asks for none."""
    found = [press(card, (key, pass_id))[0].code for key in ("one", "two", "three")]
    assert found == [Code.ADMITTED] + [Code.PASS_SPENT if pass_id else Code.ADMITTED] * 2
    assert codes(press(card, ("four", "another"))) == [Code.ADMITTED if pass_id else Code.LIMIT_REACHED]


def test_many_at_once_with_one_pass(card: SaleCard) -> None:
    found = codes(press(card, *[(f"key-{number}", "shared") for number in range(5)], ("own", "own")))
    assert found == [Code.ADMITTED, *[Code.PASS_SPENT] * 4, Code.ADMITTED]


def test_the_same_request_again_needs_no_pass(card: SaleCard) -> None:
    (first,) = press(card, ("one", "mine"))
    before = snapshot(card)
    again = press(card, ("one", "mine"), ("one", NO_PASS), ("one", "other"), ("one", ""))
    assert codes(again) == [KNOWN_QUEUED] * 4
    assert {answer.seq for answer in again} == {first.seq}
    assert snapshot(card) == before
    assert codes(press(card, ("two", "other"))) == [Code.ADMITTED]


def test_without_a_pass_nobody_is_let_in_and_nothing_changes(card: SaleCard) -> None:
    before = snapshot(card)
    assert codes(press(card, ("one", NO_PASS), ("two", NO_PASS))) == [Code.PASS_REQUIRED] * 2
    assert snapshot(card) == before
    assert codes(press(card, ("one", "late"))) == [Code.ADMITTED]


def test_a_request_that_is_not_let_in_spends_nothing(card: SaleCard) -> None:
    press(card, *[(f"key-{number}", f"pass-{number}") for number in range(3)])
    assert codes(press(card, ("fourth", "kept"))) == [Code.LIMIT_REACHED]
    assert run(("HGET", keys.passes(card.sku), f"{card.sale_id}:kept")) == [None]
    spent = run(("HGET", keys.passes(card.sku), f"{card.sale_id}:pass-0"))
    assert spent == [ask(card, "ann", key="key-0").request_id]


def test_a_pass_of_one_sale_is_no_pass_of_the_next(card: SaleCard) -> None:
    """Two sales of one SKU share their keys."""
    press(card, ("one", "mine"))
    next_sale = SaleLine(card.sale_id + 1, card.sku)
    (answer,) = admission.admit(redis.connect(), next_sale, [ask(card, "bob")._replace(pass_id="mine")])
    assert answer.code == Code.NOT_PRIMED
    assert run(("HLEN", keys.passes(card.sku))) == [1]


def test_the_books_balance_with_passes(card: SaleCard) -> None:
    press(card, ("one", "a"), ("two", "b"), ("three", "b"))
    settle_line(card)
    assert assert_books_balance(card)["orders_held"] == 2
    assert codes(press(card, ("three", "b"))) == [Code.PASS_SPENT]
