"""Captures that wait for one SKU in one process are one transaction, and each of them has an answer of its own.
Uses real PostgreSQL and a thread for each notice.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal

import pytest
from django.db import OperationalError, connection, transaction

from inventory import ledger, redis
from inventory.exceptions import LineNotTold
from inventory.line import reading
from shop.models import Order, Payment
from shop.orders.holds import Changes
from shop.payments import captures
from shop.payments.providers import Notice
from shop.sales.catalogue import SaleCard
from tests.support.paying import again, captured, hear, hold
from tests.support.shopkeeping import assert_books_balance, make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
BUYERS = 6


class Forgetful(UserDict[str, object]):
    """The control: each capture has a turn of its own, as if it were alone."""

    def __setitem__(self, key: str, value: object) -> None:
        """Keep nothing."""


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=BUYERS)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many captures each transaction was begun with."""
    seen, sell = list[int](), captures._sell

    def note(sku: str, together: Sequence[captures.Capture]) -> Changes:
        seen.append(len(together))
        return sell(sku, together)

    monkeypatch.setattr(captures, "_sell", note)
    return seen


def hear_in_a_thread(notice: Notice) -> str:
    try:
        return hear(notice)
    finally:
        connection.close()


@contextmanager
def waiting(card: SaleCard, notices: Sequence[Notice], sizes: list[int]) -> Iterator[list[Future[str]]]:
    """Hear `notices` while another transaction has the stock row: the first one waits there, the others behind it."""
    with ThreadPoolExecutor(len(notices)) as pool:
        with transaction.atomic(), connection.cursor() as cursor:
            ledger.lock_stock(cursor, sku=card.sku)
            results = [pool.submit(hear_in_a_thread, notices[0])]
            wait_until(lambda: bool(sizes), what="the first one is on its way")
            results += [pool.submit(hear_in_a_thread, notice) for notice in notices[1:]]
            wait_until(lambda: waits(card) + len(sizes) == len(notices), what="all others wait")
        yield results


def waits(card: SaleCard) -> int:
    turn = captures._turns.get(card.sku)
    return len(turn.waiting) if turn else 0


def told(card: SaleCard, names: Sequence[str]) -> set[str]:
    """Return the states of requests as the line knows them."""
    return {place.record.state if place else "" for place in reading.places(redis.connect(), card.sku, names)}


def test_captures_that_wait_for_one_sku_are_one_transaction(card: SaleCard, sizes: list[int]) -> None:
    names = hold(card, buyers=BUYERS)
    with waiting(card, captured(names), sizes) as results:
        assert [result.result() for result in results] == ["paid"] * BUYERS
    assert sizes == [1, BUYERS - 1]
    assert Order.objects.filter(request_id__in=names, state="paid").count() == BUYERS
    assert told(card, names) == {"paid"}
    assert card.sku not in captures._turns
    assert_books_balance(card)


def test_without_turns_each_is_a_transaction_of_its_own(
    card: SaleCard, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "_turns", Forgetful())
    names = hold(card, buyers=BUYERS)
    with waiting(card, captured(names), sizes) as results:
        assert [result.result() for result in results] == ["paid"] * BUYERS
    assert sizes == [1] * BUYERS
    assert_books_balance(card)


def test_one_that_cannot_pay_keeps_no_other(card: SaleCard, sizes: list[int]) -> None:
    names = hold(card, buyers=BUYERS)
    first, second, wrong, *others = captured(names)
    notices = [first, second, again(wrong, amount=wrong.amount + Decimal(1)), again(second), *others]
    with waiting(card, notices, sizes) as results:
        answers = [result.result() for result in results]
    assert sizes == [1, len(notices) - 1, *[1] * (len(notices) - 1)]
    assert answers == ["paid", "paid", "refund_due", "nothing to change", *["paid"] * len(others)]
    assert Order.objects.filter(request_id__in=names, state="paid").count() == BUYERS - 1
    assert_books_balance(card)


@pytest.mark.parametrize("what", ["_sell", "publish"])
@pytest.mark.parametrize("error", [OperationalError, SystemExit])
def test_an_error_is_the_answer_of_all_who_waited(
    card: SaleCard, sizes: list[int], monkeypatch: pytest.MonkeyPatch, what: str, error: type[BaseException]
) -> None:
    names = hold(card, buyers=BUYERS)
    notices, act, calls = captured(names), getattr(captures, what), list[object]()

    def fail_the_second_time(*values: object) -> object:
        calls.append(values)
        if len(calls) == 2:
            raise error
        return act(*values)

    monkeypatch.setattr(captures, what, fail_the_second_time)
    with waiting(card, notices, sizes) as results:
        found = [type(result.exception()) for result in results]
    assert found == [type(None), *[error] * (BUYERS - 1)]
    # Sent again, as every provider does.
    assert [hear(notice) for notice in notices] == ["paid"] * BUYERS
    assert told(card, names) == {"paid"}
    assert Payment.objects.filter(order__request_id__in=names, state="captured").count() == BUYERS
    assert_books_balance(card)


def test_a_line_that_is_not_told_is_the_answer_of_all(
    card: SaleCard, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = hold(card, buyers=BUYERS)
    notices = captured(names)

    def refuse(_: object) -> None:
        raise LineNotTold

    with monkeypatch.context() as patch:
        patch.setattr(captures, "publish", refuse)
        with waiting(card, notices, sizes) as results:
            assert {type(result.exception()) for result in results} == {LineNotTold}
    assert [hear(notice) for notice in notices] == ["paid"] * BUYERS
    assert told(card, names) == {"paid"}
