"""A payment and the end of its hold at the same instant, a thousand times: exactly one of them has the hold.
Begins with its controls. Uses real PostgreSQL and the real sandbox.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from django.db import DataError, IntegrityError, connection, transaction

from inventory import ledger
from inventory.exceptions import FairdropError, NotPayable
from shop.models import Order, OrderEvent, Payment
from shop.orders import holds
from shop.payments import notices as payments
from shop.payments import rows
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge
from tests.support.paying import again, captured, hear, hold
from tests.support.shopkeeping import assert_books_balance, audit_of, let_holds_end, make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
ROUNDS = 1000
START_SECONDS = 120
# What a payment waits in its middle for the end of its hold: nothing is in its way, or the locks that it waits for.
PAUSE_SECONDS, PAUSE_WITH_LOCKS_SECONDS = 60, 6
# Anyone who comes a moment later: without it the one with the shorter way would always win.
SCATTER_SECONDS = 0.002


def expire(card: SaleCard, name: str, *, unit_goes: bool = False) -> bool:
    """End a hold that is due; say whether it was there to end. unit_goes: nobody can have its unit afterwards."""
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.expire_due(cursor, sku=card.sku, request_ids=[name])
        if changes.changed and unit_goes:
            ledger.adjust_stock(cursor, sku=card.sku, units=-1, actor="test", reason="went to somebody else")
    holds.publish(changes)
    return bool(changes.changed)


def race(count: int, *runners: Callable[[int], object]) -> list[tuple[object, ...]]:
    """Call every runner with 0 … count - 1, each round begun by all at the same instant."""
    barrier = Barrier(len(runners))

    def run(place: int) -> list[object]:
        runner, scatter, results = runners[place], random.Random(place), list[object]()
        try:
            for number in range(count):
                barrier.wait(timeout=START_SECONDS)
                time.sleep(scatter.random() * SCATTER_SECONDS)
                results.append(runner(number))
        except BaseException:
            barrier.abort()
            raise
        finally:
            connection.close()
        return results

    with ThreadPoolExecutor(len(runners)) as pool:
        return list(zip(*pool.map(run, range(len(runners))), strict=True))


def expire_in_the_middle_of_a_payment(
    card: SaleCard, name: str, monkeypatch: pytest.MonkeyPatch, *, pause_seconds: float = PAUSE_SECONDS
) -> None:
    """Let a payment read its order, then a hold end, then the payment go on: what the locks forbid."""
    (notice,) = captured([name])
    has_read, may_go_on = Event(), Event()
    judge = payments._rejection_reason

    def judge_slowly(*args: object, **named: object) -> str:
        rejection_reason = judge(*args, **named)  # type: ignore[arg-type]
        has_read.set()
        # Not for ever: with the locks on, the other one waits for us.
        may_go_on.wait(timeout=pause_seconds)
        return rejection_reason

    def take_a_look(*_: object, **__: object) -> None:
        raise DataError

    monkeypatch.setattr(payments, "_rejection_reason", judge_slowly)
    # What is sold in one round trip has no middle; this is the way of a payment that needs a look.
    monkeypatch.setattr(payments, "sell_held", take_a_look)

    def pay() -> str:
        try:
            return hear(notice)
        except (FairdropError, IntegrityError) as error:
            return type(error).__name__
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        paying = pool.submit(pay)
        assert has_read.wait(timeout=START_SECONDS)
        try:
            expire(card, name)
        finally:
            may_go_on.set()
        paying.result(timeout=START_SECONDS)


def without_row_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LOCK", ledger.LOCK.replace("FOR UPDATE", ""))
    monkeypatch.setattr(rows, "LOCK_PAYMENT", rows.LOCK_PAYMENT.replace("FOR UPDATE", ""))


def test_without_lock_and_condition_one_unit_is_sold_and_free(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: both guards off, and the audit sees a unit that is in two places."""
    card = make_sale(new_sku(), units=3)
    names = hold(card, buyers=3)
    let_holds_end(names[0])
    without_row_locks(monkeypatch)
    anyhow = rows.CHANGE_ORDER.replace("AND state = %(was)s", "AND %(was)s <> ''")
    monkeypatch.setattr(rows, "CHANGE_ORDER", anyhow)
    expire_in_the_middle_of_a_payment(card, names[0], monkeypatch)
    broken = {each["id"] for each in audit_of(card)["invariants"] if not each["ok"]}
    assert "I2b" in broken, broken
    assert Order.objects.get(request_id=names[0]).state == "paid"


def test_without_lock_the_condition_alone_holds(new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second guard: a payment that finds its order changed writes nothing, and may be brought in again."""
    card = make_sale(new_sku(), units=3)
    names = hold(card, buyers=3)
    let_holds_end(names[0])
    without_row_locks(monkeypatch)
    expire_in_the_middle_of_a_payment(card, names[0], monkeypatch)
    assert Order.objects.get(request_id=names[0]).state == "expired"
    assert_books_balance(card)


def test_with_the_locks_the_hold_does_not_end_in_the_middle(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_sale(new_sku(), units=3)
    names = hold(card, buyers=3)
    let_holds_end(names[0])
    expire_in_the_middle_of_a_payment(card, names[0], monkeypatch, pause_seconds=PAUSE_WITH_LOCKS_SECONDS)
    assert Order.objects.get(request_id=names[0]).state == "paid"
    assert_books_balance(card)


@pytest.mark.parametrize("guarded", [False, True], ids=["control", "guarded"])
def test_in_one_round_trip_the_condition_holds(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """What has ended is not sold as if it were held; without the condition the audit sees the unit in two places."""
    card = make_sale(new_sku(), units=3)
    names = hold(card, buyers=3)
    let_holds_end(names[0])
    (notice,) = captured(names[:1])
    assert expire(card, names[0])
    if not guarded:
        anyhow = rows.CAPTURE.replace("AND o.state = 'held'", "")
        monkeypatch.setattr(rows, "CAPTURE", anyhow)
    assert hear(notice) == "paid"
    broken = {each["id"] for each in audit_of(card)["invariants"] if not each["ok"]}
    assert broken == set() if guarded else "I2b" in broken


@pytest.mark.timeout(900)
def test_a_thousand_payments_against_a_thousand_ends(new_sku: Callable[[], str]) -> None:
    """Every other unit is gone when its hold ends: there the late payment must go back, elsewhere it buys again."""
    card = make_sale(new_sku(), units=ROUNDS)
    names = hold(card, buyers=ROUNDS)
    notices = captured(names)
    let_holds_end(*names)
    rounds = race(
        ROUNDS,
        lambda number: hear(notices[number]),
        lambda number: expire(card, names[number], unit_goes=number % 2 == 0),
    )
    states = dict(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", "state"))
    seen: Counter[tuple[object, ...]] = Counter()
    for number, (heard, ended) in enumerate(rounds):
        seen[(states[names[number]], heard, ended, number % 2 == 0)] += 1
    assert set(seen) <= {
        ("paid", "paid", False, True),
        ("paid", "paid", False, False),
        ("refunded", "refund_due", True, True),
        ("paid", "paid", True, False),
    }
    assert min(seen[("paid", "paid", False, True)], seen[("refunded", "refund_due", True, True)]) > 0, seen
    left = OrderEvent.objects.filter(order__sale_id=card.sale_id, from_state="held")
    assert left.count() == left.values("order_id").distinct().count() == ROUNDS
    money = Counter(Payment.objects.filter(order__sale_id=card.sale_id).values_list("order__state", "state"))
    refunded = seen[("refunded", "refund_due", True, True)]
    assert money == {("paid", "captured"): ROUNDS - refunded, ("refunded", "refunded"): refunded}
    references = [notice.reference for notice in notices]
    assert Charge.objects.filter(reference__in=references, state="captured").count() == ROUNDS - refunded
    assert_books_balance(card)


def test_cancelling_against_paying(new_sku: Callable[[], str]) -> None:
    rounds = 200
    card = make_sale(new_sku(), units=rounds)
    names = hold(card, buyers=rounds)
    notices = captured(names)

    def cancel(number: int) -> str:
        try:
            return holds.cancel(names[number], buyer=f"buyer-{number:07d}").value
        except NotPayable:
            return "not payable"

    answers = race(rounds, lambda number: hear(notices[number]), cancel)
    states = dict(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", "state"))
    seen = Counter((states[name], *answer) for name, answer in zip(names, answers, strict=True))
    assert set(seen) == {("paid", "paid", "not payable"), ("refunded", "refund_due", "cancelled")}
    charges = Charge.objects.filter(reference__in=[notice.reference for notice in notices])
    assert charges.filter(state="captured").count() == seen[("paid", "paid", "not payable")]
    assert_books_balance(card)


def test_one_notice_heard_by_many_at_once_sells_once(new_sku: Callable[[], str]) -> None:
    """The same event, and others about the same charge, in parallel."""
    rounds, ears = 30, 4
    card = make_sale(new_sku(), units=rounds)
    names = hold(card, buyers=rounds)
    notices = captured(names)

    def hear_it(number: int) -> str:
        return hear(notices[number])

    def hear_of_it(number: int) -> str:
        return hear(again(notices[number]))

    answers = race(rounds, *[hear_it] * ears, *[hear_of_it] * ears)
    assert {answer for row in answers for answer in row} == {"paid", "nothing to change"}
    left = OrderEvent.objects.filter(order__sale_id=card.sale_id, to_state="paid")
    assert left.count() == left.values("order_id").distinct().count() == rounds
    counts = assert_books_balance(card)
    assert counts["sold"] == rounds
