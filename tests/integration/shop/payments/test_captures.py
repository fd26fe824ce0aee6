"""Captures that wait for one SKU in one process are one transaction, and each of them has an answer of its own.
Uses real PostgreSQL and a thread for each notice.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from threading import Event
from typing import Any

import pytest
from django.db import OperationalError, connection

from inventory import redis
from inventory.exceptions import LineNotTold
from inventory.line import reading
from shop.models import Order, Payment
from shop.orders.holds import Changes
from shop.payments import captures
from shop.payments.providers import Notice
from shop.payments.rows import Target, find_target
from shop.sales.catalogue import SaleCard
from tests.support.paying import again, captured, hear, hold
from tests.support.shopkeeping import assert_books_balance, make_sale
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
BUYERS = 6


class Forgetful(UserDict[str, object]):
    """The control: each capture has a turn of its own, as if it were alone."""

    def __setitem__(self, key: str, value: object) -> None:
        """Keep nothing."""


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=BUYERS)


class Sales:
    """The transactions that sold: how many captures each was begun with. The first waits until it may go on."""

    def __init__(self) -> None:
        self.sizes = list[int]()
        self.may_go_on = Event()
        self._sell = captures._sell

    def sell(self, sku: str, together: Sequence[captures.Capture]) -> Changes:
        self.sizes.append(len(together))
        assert self.may_go_on.wait(timeout=PATIENCE_SECONDS)
        return self._sell(sku, together)


@pytest.fixture
def sales(monkeypatch: pytest.MonkeyPatch) -> Sales:
    """Return what notes each transaction that sells."""
    seen = Sales()
    monkeypatch.setattr(captures, "_sell", seen.sell)
    return seen


def hear_in_a_thread(notice: Notice) -> str:
    try:
        return hear(notice)
    finally:
        connection.close()


def hear_together(card: SaleCard, notices: Sequence[Notice], sales: Sales) -> list[Future[str]]:
    """Hear `notices`: the first one is about to sell until all others wait behind it, or have their answer."""
    with ThreadPoolExecutor(len(notices)) as pool:
        try:
            results = [pool.submit(hear_in_a_thread, notices[0])]
            wait_until(lambda: bool(sales.sizes), what="the first one is about to sell")
            results += [pool.submit(hear_in_a_thread, notice) for notice in notices[1:]]
            wait_until(lambda: counted(card, sales, results) == len(notices), what="all others wait or are answered")
        finally:
            sales.may_go_on.set()
        return results


def counted(card: SaleCard, sales: Sales, results: Sequence[Future[str]]) -> int:
    """Return how many sell, wait, or are answered."""
    turn = captures._turns.get(card.sku)
    return len(sales.sizes) + (len(turn.waiting) if turn else 0) + sum(result.done() for result in results)


def find_as_if_it_were_open(notice: Notice, *, provider_name: str) -> Target:
    return find_target(notice, provider_name=provider_name)._replace(payment_state="pending")


def told(card: SaleCard, names: Sequence[str]) -> set[str]:
    """Return the states of requests as the line knows them."""
    return {place.record.state if place else "" for place in reading.places(redis.connect(), card.sku, names)}


def test_captures_that_wait_for_one_sku_are_one_transaction(card: SaleCard, sales: Sales) -> None:
    names = hold(card, buyers=BUYERS)
    results = hear_together(card, captured(names), sales)
    assert [result.result() for result in results] == ["paid"] * BUYERS
    assert sales.sizes == [1, BUYERS - 1]
    assert Order.objects.filter(request_id__in=names, state="paid").count() == BUYERS
    assert told(card, names) == {"paid"}
    assert card.sku not in captures._turns
    assert_books_balance(card)


def test_without_turns_each_is_a_transaction_of_its_own(
    card: SaleCard, sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "_turns", Forgetful())
    names = hold(card, buyers=BUYERS)
    results = hear_together(card, captured(names), sales)
    assert [result.result() for result in results] == ["paid"] * BUYERS
    assert sales.sizes == [1] * BUYERS
    assert_books_balance(card)


def test_one_that_cannot_pay_keeps_no_other(card: SaleCard, sales: Sales) -> None:
    names = hold(card, buyers=BUYERS)
    first, second, wrong, *others = captured(names)
    notices = [first, second, again(wrong, amount=wrong.amount + Decimal(1)), again(second), *others]
    results = hear_together(card, notices, sales)
    answers = [result.result() for result in results]
    assert sales.sizes == [1, len(notices) - 1, *[1] * (len(notices) - 1)]
    # Of two notices of one charge the first that waits is the one that pays.
    assert sorted(answers[1:4:2]) == ["nothing to change", "paid"]
    assert [answers[0], *answers[4:]] == ["paid"] * (1 + len(others))
    assert answers[2] == "refund_due"
    assert Order.objects.filter(request_id__in=names, state="paid").count() == BUYERS - 1
    assert_books_balance(card)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_second_event_of_a_payment_keeps_no_stranger(
    card: SaleCard, sales: Sales, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """Stripe says twice that a payment was captured. The control is not told what became of the payment."""
    first, *others = captured(hold(card, buyers=BUYERS))
    with monkeypatch.context() as patch:
        patch.setattr(captures, "_sell", sales._sell)
        assert hear(first) == "paid"
    if not is_told:
        monkeypatch.setattr("shop.payments.notices.find_target", find_as_if_it_were_open)
    results = hear_together(card, [others[0], again(first), *others[1:]], sales)
    assert [result.result() for result in results] == ["paid", "nothing to change", *["paid"] * (len(others) - 1)]
    assert sales.sizes == ([1, len(others) - 1] if is_told else [1, len(others), *[1] * len(others)])
    assert_books_balance(card)


@pytest.mark.parametrize("what", ["_sell", "publish"])
@pytest.mark.parametrize("error", [OperationalError, SystemExit])
def test_an_error_is_the_answer_of_all_who_waited(
    card: SaleCard, sales: Sales, monkeypatch: pytest.MonkeyPatch, what: str, error: type[BaseException]
) -> None:
    names = hold(card, buyers=BUYERS)
    notices, act = captured(names), getattr(captures, what)

    def fail_for_many(*values: Any) -> Any:
        if len(getattr(values[-1], "changed", values[-1])) > 1:
            raise error
        return act(*values)

    monkeypatch.setattr(captures, what, fail_for_many)
    results = hear_together(card, notices, sales)
    found = [type(result.exception()) for result in results]
    assert found == [type(None), *[error] * (BUYERS - 1)]
    # Sent again, as every provider does.
    assert [hear(notice) for notice in notices] == ["paid"] * BUYERS
    assert told(card, names) == {"paid"}
    assert Payment.objects.filter(order__request_id__in=names, state="captured").count() == BUYERS
    assert_books_balance(card)


def test_a_line_that_is_not_told_is_the_answer_of_all(
    card: SaleCard, sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = hold(card, buyers=BUYERS)
    notices = captured(names)

    def refuse(_: object) -> None:
        raise LineNotTold

    with monkeypatch.context() as patch:
        patch.setattr(captures, "publish", refuse)
        results = hear_together(card, notices, sales)
        assert {type(result.exception()) for result in results} == {LineNotTold}
    assert [hear(notice) for notice in notices] == ["paid"] * BUYERS
    assert told(card, names) == {"paid"}
