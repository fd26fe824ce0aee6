"""Two payments at the same instant where one more card may be tried: one of them is declined, not both.
Each guard has its control. Uses real PostgreSQL and the real sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from secrets import token_hex
from threading import Barrier, Event
from typing import NamedTuple

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import override_settings

from inventory.exceptions import FairdropError, PaymentOpen, PaymentsLimited
from inventory.postgres import TwoKeyAdvisoryLock
from shop.models import CHARGE_LIFE, OF_DECLINED_CARD, Order, Payment, PaymentNotice
from shop.payments import checkout, notices, recovery, tries
from shop.payments.providers import Notice
from shop.payments.tries import Tries
from shop.sales.catalogue import SaleCard
from tests.support.paying import NOWHERE, begin, happen, hear, hold
from tests.support.shopkeeping import assert_books_balance, make_sale
from tests.support.stripe_shop import expire
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
SANDBOX = "shop.sandbox.provider.Sandbox"
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND NOT granted"
# Of the hold, or of the buyer.
CAP = 2


class Try(NamedTuple):
    """One press on the button that pays."""

    request_id: str
    provider_name: str


@pytest.fixture
def buyer() -> str:
    """A buyer of this test alone: what others had declined counts for them."""
    return f"last-{token_hex(4)}-0000000"


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=1)


@contextmanager
def limited(*, of: str) -> Iterator[None]:
    """Let a hold or a buyer try CAP cards, at two providers that know no good one."""
    with override_settings(
        PAYMENT_PROVIDERS={"sandbox": SANDBOX, "till": SANDBOX},
        SANDBOX_MISCHIEF=["mute", "declines"],
        MAX_DECLINED_PER_HOLD=CAP if of == "hold" else 10,
        MAX_DECLINED_PER_BUYER=CAP if of == "buyer" else 10,
    ):
        yield


def holds_of(buyer: str, *cards: SaleCard) -> list[str]:
    """Let a buyer hold a unit of each sale; return the requests."""
    return [hold(card, buyers=1, named=buyer.removesuffix("-0000000"))[0] for card in cards]


def declined_of(buyer: str) -> int:
    """Return how many cards of a buyer were declined."""
    references = Payment.objects.filter(order__buyer=buyer).values("reference")
    return PaymentNotice.objects.filter(OF_DECLINED_CARD, reference__in=references).count()


def someone_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(WAITING, [TwoKeyAdvisoryLock.PAYMENT_TURN])
        return bool(cursor.fetchone()[0])


def meet(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    is_far_enough: Callable[[], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stop `first` where it has counted and begun nothing yet, until `second` is far enough or waits for its turn."""
    has_counted, may_go_on = Event(), Event()
    refuse = notices._refuse_card_testing

    def refuse_slowly(order: Order, *, others: list[Payment]) -> None:
        refuse(order, others=others)
        if not has_counted.is_set():
            has_counted.set()
            may_go_on.wait(timeout=PATIENCE_SECONDS)

    def run(act: Callable[[], object]) -> None:
        try:
            with suppress(FairdropError):  # declined, or refused
                act()
        finally:
            connection.close()

    monkeypatch.setattr(notices, "_refuse_card_testing", refuse_slowly)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run, first)]
        try:
            wait_until(has_counted.is_set, what="the first one has counted")
            both.append(pool.submit(run, second))
            wait_until(lambda: is_far_enough() or someone_waits(), what="the second one is far enough")
        finally:
            may_go_on.set()
        for each in both:
            each.result(timeout=PATIENCE_SECONDS)


def pay_at_once(buyer: str, *pressed: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both payments be begun or refused before the card of either is declined."""
    begin_one, begun, both = notices.begin, Event(), Barrier(2)

    def begin_together(order: Order, *, provider_name: str) -> Payment:
        try:
            return begin_one(order, provider_name=provider_name)
        finally:
            begun.set()  # the other one stands in the middle of its own
            both.wait(timeout=PATIENCE_SECONDS)

    def press(each: Try) -> None:
        checkout.pay_at_once(each.request_id, buyer=buyer, provider_name=each.provider_name, root=NOWHERE)

    monkeypatch.setattr(notices, "begin", begin_together)
    first, second = (partial(press, each) for each in pressed)
    meet(first, second, is_far_enough=begun.is_set, monkeypatch=monkeypatch)


def switch_off(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if guard == "turns":
        monkeypatch.setattr(tries, "take_turn", lambda _buyer: None)
    if guard == "open payments count":
        monkeypatch.setattr(Tries, "with_open", lambda self, _payments, *, order: self)


@pytest.mark.parametrize("of", ["hold", "buyer"])
@pytest.mark.parametrize(("off", "over"), [("", 0), ("turns", 1), ("open payments count", 1)])
def test_of_two_cards_at_once_only_the_last_one_is_tried(
    buyer: str, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, of: str, off: str, over: int
) -> None:
    """One hold at two providers, or two holds of one buyer, after one card was declined.

    The controls: without either guard one card more is declined.
    """
    cards = [make_sale(new_sku(), units=1) for _ in range(1 if of == "hold" else 2)]
    names = holds_of(buyer, *cards)
    pressed = Try(names[0], "sandbox"), Try(names[-1], "till")
    with limited(of=of):
        assert hear(happen(begin(names[0]), "declined")) == "declined"
        switch_off(off, monkeypatch)
        pay_at_once(buyer, *pressed, monkeypatch=monkeypatch)
    assert declined_of(buyer) == CAP + over
    assert set(Order.objects.filter(buyer=buyer).values_list("state", flat=True)) == {"held"}
    for card in cards:
        assert_books_balance(card)


@pytest.mark.parametrize(("off", "left_open"), [("", 0), ("turns", 1)])
def test_what_is_begun_while_the_last_cards_are_declined_takes_none(
    buyer: str, card: SaleCard, monkeypatch: pytest.MonkeyPatch, off: str, left_open: int
) -> None:
    """Two cards are declined on one page while another payment of the hold begins; it is ended with that page.

    The control: without turns the notice does not see what is being begun.
    """
    (name,) = holds_of(buyer, card)
    order, heard = Order.objects.get(request_id=name), list[str]()
    with limited(of="hold"):
        page = begin(name)
        declines = [
            Notice(f"evt_{token_hex(8)}", "card_declined", page.reference, page.amount, page.currency)
            for _ in range(CAP)
        ]
        switch_off(off, monkeypatch)
        meet(
            lambda: notices.begin(order, provider_name="till"),
            lambda: heard.extend(hear(each) for each in declines),
            is_far_enough=lambda: len(heard) == CAP,
            monkeypatch=monkeypatch,
        )
        assert heard == ["card declined"] * CAP
        assert len(tries.find_open(order)) == left_open
        with pytest.raises(PaymentsLimited):
            notices.begin(order, provider_name="sandbox")


def end(card: SaleCard, payment: Payment) -> None:
    """Let the hold of a payment end, and the payments worker tell its provider."""
    expire(payment.order.request_id, sku=card.sku)
    recovery.bring_on()


def grow_old(_card: SaleCard, payment: Payment) -> None:
    Payment.objects.filter(pk=payment.pk).update(created_at=Now() - CHARGE_LIFE)


def succeed(_card: SaleCard, payment: Payment) -> None:
    assert hear(happen(payment, "captured")) == "paid"


@pytest.mark.parametrize("go_on", [end, grow_old, succeed])
def test_nobody_waits_for_an_open_payment_for_ever(
    buyer: str, new_sku: Callable[[], str], go_on: Callable[[SaleCard, Payment], None]
) -> None:
    """The open payment itself may always be gone on with, and another buyer pays meanwhile."""
    cards = [make_sale(new_sku(), units=2) for _ in range(2)]
    first, second = holds_of(buyer, *cards)
    (other,) = holds_of(f"other-{buyer}", cards[0])
    with limited(of="buyer"):
        assert hear(happen(begin(first), "declined")) == "declined"
        payment = begin(first)
        with pytest.raises(PaymentOpen, match="may be your last try"):
            begin(second)
        assert begin(first) == payment
        assert begin(other).state == "pending"
        go_on(cards[0], payment)
        assert begin(second).state == "pending"
