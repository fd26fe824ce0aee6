"""One network is let in for so many units of a sale, by the script that admits. Each test has a SKU of its own, and
runs on every kind of Redis.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inventory import redis
from inventory.line import admission
from inventory.line.admission import Answer, Code, SaleLine
from shop.sales.catalogue import SaleCard
from tests.support.road import ask, settle_line, snapshot
from tests.support.shopkeeping import assert_books_balance, make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
KNOWN_QUEUED = Code.KNOWN_BEFORE + ord("q")
LIMIT = 3
HOME, SCHOOL, UNKNOWN = "192.0.2", "198.51.100", ""


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of twenty units, three a buyer."""
    return make_sale(new_sku(), units=20, limit=3, line_capacity=0)


def press(
    card: SaleCard, *presses: tuple[str, str], limit: int = LIMIT, quantity: int = 1, key: str = ""
) -> list[Answer]:
    """Ask in one call; presses: network and buyer."""
    asks = [ask(card, buyer, quantity=quantity, key=key)._replace(network=network) for network, buyer in presses]
    return admission.admit(redis.connect(), SaleLine(card.sale_id, card.sku, limit), asks)


def codes(answers: list[Answer]) -> list[int]:
    return [answer.code for answer in answers]


@pytest.mark.parametrize("limit", [LIMIT, 0])
def test_one_network_is_let_in_for_its_limit_and_another_one_goes_on(card: SaleCard, limit: int) -> None:
    """The control is no limit."""
    over = Code.NETWORK_LIMITED if limit else Code.ADMITTED
    found = [press(card, (HOME, f"home-{number}"), limit=limit)[0].code for number in range(LIMIT + 2)]
    assert found == [Code.ADMITTED] * LIMIT + [over] * 2
    assert codes(press(card, (SCHOOL, "school"), limit=limit)) == [Code.ADMITTED]


def test_many_at_once_of_one_network_get_no_more(card: SaleCard) -> None:
    wishes = [(HOME if number % 2 else SCHOOL, f"pupil-{number}") for number in range(12)]
    found = codes(press(card, *wishes))
    assert found == [Code.ADMITTED] * 2 * LIMIT + [Code.NETWORK_LIMITED] * (12 - 2 * LIMIT)
    assert codes(press(card, (HOME, "late"), (SCHOOL, "later"))) == [Code.NETWORK_LIMITED] * 2


def test_units_are_counted_and_not_presses(card: SaleCard) -> None:
    assert codes(press(card, (HOME, "two"), quantity=2)) == [Code.ADMITTED]
    assert codes(press(card, (HOME, "two more"), quantity=2)) == [Code.NETWORK_LIMITED]
    assert codes(press(card, (HOME, "one"))) == [Code.ADMITTED]


def test_who_was_let_in_before_is_answered_as_before(card: SaleCard) -> None:
    press(card, *[(HOME, f"early-{number}") for number in range(LIMIT)])
    before = snapshot(card)
    assert codes(press(card, (HOME, "early-0"), (HOME, "early-0"))) == [KNOWN_QUEUED] * 2
    assert codes(press(card, (HOME, "newcomer"))) == [Code.NETWORK_LIMITED]
    assert snapshot(card) == before


def test_a_network_that_is_not_known_is_not_counted(card: SaleCard) -> None:
    assert set(codes(press(card, *[(UNKNOWN, f"somebody-{number}") for number in range(10)]))) == {Code.ADMITTED}


def test_asking_and_giving_back_does_not_begin_at_none_again(card: SaleCard) -> None:
    """What was let in counts, whatever becomes of it."""
    press(card, *[(HOME, f"holder-{number}") for number in range(LIMIT)])
    settle_line(card)
    assert codes(press(card, (HOME, "holder-0"), key="again")) == [Code.NETWORK_LIMITED]
    assert_books_balance(card)


def test_a_line_without_room_says_so_first(card: SaleCard) -> None:
    """Only someone who could have been let in is told of the limit."""
    press(card, *[(HOME, f"first-{number}") for number in range(LIMIT)])
    assert codes(press(card, (SCHOOL, "all"), limit=20, quantity=3)) == [Code.ADMITTED]
    press(card, *[(f"10.0.{number}", f"rest-{number}") for number in range(20 - LIMIT - 3)])
    assert codes(press(card, (HOME, "too late"))) == [Code.LINE_FULL]
