"""Staff note that the money of a failed refund was sent, while Stripe says the same, or somebody presses once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import current_thread, main_thread
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection

from inventory import ledger
from inventory.exceptions import NotPayable
from inventory.postgres import Cursor
from shop.models import Order, StaffAct
from shop.payments import refunds
from shop.payments.rows import NoticeResult
from shop.sales.catalogue import SaleCard
from shop.staff.lists.order_acts import do_act
from tests.support.paying import hold, payment_state
from tests.support.servers.stripe_server import StripeServer
from tests.support.shopkeeping import assert_books_balance, make_sale
from tests.support.stripe_shop import begin, hear, payment_of, selling_by_stripe
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
BLOCKED = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))"


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=1)


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    """Let this process sell by Stripe."""
    with selling_by_stripe() as server:
        yield server


def failed(card: SaleCard, stripe: StripeServer) -> Order:
    """Return an order whose money went back, and came to us again."""
    (name,) = hold(card, buyers=1)
    begin(name)
    reference = payment_of(name).reference
    hear(stripe.pay(reference))
    refunds.refund_order(name, actor="anna", reason="damaged")
    assert hear(stripe.fail_refund(reference)) == NoticeResult.REFUND_DUE
    return Order.objects.get(request_id=name)


def lock_nothing(monkeypatch: pytest.MonkeyPatch, *, in_other_threads: bool) -> None:
    """The control: who notes that money was sent does not take the stock first."""
    lock = ledger.lock_stock

    def lock_or_not(cursor: Cursor, *, sku: str) -> Any:
        return None if in_other_threads or current_thread() is main_thread() else lock(cursor, sku=sku)

    monkeypatch.setattr(ledger, "lock_stock", lock_or_not)


def somebody_waits_for_us() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(BLOCKED)
        return bool(cursor.fetchone()[0])


def press_before(other: Callable[[], object], order: Order) -> list[Any]:
    """Note that the money was sent; before the act is written down, let `other` wait for this transaction.

    Return what the press ended with, an error or None, and what `other` returned or ended with.
    """

    def run() -> object:
        try:
            return other()
        except (DatabaseError, NotPayable) as error:
            return error.__cause__ if isinstance(error, DatabaseError) else error
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        others, error = [], None

        def note() -> None:
            others.append(pool.submit(run))
            wait_until(somebody_waits_for_us, what="the other one waits")
            StaffAct.objects.create(sale=order.sale, act="sent_order", actor="anna", reason="by bank transfer")

        try:
            refunds.note_sent(order.request_id, reason="by bank transfer", note=note)
        except DatabaseError as ended:
            error = ended.__cause__
        return [error, others[0].result(timeout=PATIENCE_SECONDS)]


def acts_of(order: Order) -> list[str]:
    return [act.act for act in StaffAct.objects.filter(sale=order.sale)]


def test_a_notice_that_the_money_went_back_and_the_press_do_not_wait_for_each_other(
    card: SaleCard, stripe: StripeServer
) -> None:
    order = failed(card, stripe)
    given_back = stripe.give_back(payment_of(order.request_id).reference)
    assert press_before(partial(hear, given_back), order) == [None, NoticeResult.NOTHING]
    assert (payment_state(payment_of(order.request_id)), acts_of(order)) == ("refunded", ["sent_order"])
    assert_books_balance(card)


def test_the_control_of_the_notice_takes_the_payment_first(
    card: SaleCard, stripe: StripeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = failed(card, stripe)
    given_back = stripe.give_back(payment_of(order.request_id).reference)
    lock_nothing(monkeypatch, in_other_threads=False)
    ended = press_before(partial(hear, given_back), order)
    assert [type(each) for each in ended].count(psycopg.errors.DeadlockDetected) == 1


def press_again(order: Order) -> str:
    return do_act(order, "sent", actor="bob", reason="by bank transfer")


def test_of_two_presses_one_is_told_that_nothing_is_owed(card: SaleCard, stripe: StripeServer) -> None:
    order = failed(card, stripe)
    error, told = press_before(partial(press_again, order), order)
    assert (error, type(told), acts_of(order)) == (None, NotPayable, ["sent_order"])


def test_the_control_of_two_presses_writes_two_acts(
    card: SaleCard, stripe: StripeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = failed(card, stripe)
    lock_nothing(monkeypatch, in_other_threads=True)
    assert press_before(partial(press_again, order), order) == [None, "it is not owed any more"]
    assert acts_of(order) == ["sent_order"] * 2
