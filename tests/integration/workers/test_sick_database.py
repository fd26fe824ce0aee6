"""A batch that is too much for a database in its present state is tried again as a smaller one. Real stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

from shop.models import Order
from shop.orders import holds
from tests.support import road
from tests.support.paying import hold
from tests.support.shopkeeping import assert_books_balance, let_holds_end, make_sale
from workers import settler as settler_module
from workers.expirer import Expirer

pytestmark = pytest.mark.usefixtures("shop_database")

BUYERS, BEARABLE = 20, 3
# Far more than it takes: without an end, each of them fails.
ROUNDS = 60
EACH_ERROR = pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.TransactionTimeout("the transaction took too long"),
        psycopg.errors.QueryCanceled("a statement took too long"),
        psycopg.OperationalError("the connection is closed"),  # what a pipeline may say of the same
    ],
    ids=lambda error: type(error).__name__,
)


@pytest.mark.parametrize("others", [0, 9])
@EACH_ERROR
def test_a_batch_that_the_database_does_not_get_done_in_time_is_tried_in_parts(
    error: psycopg.Error, others: int, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ends in the dead letters for that, and once it is well again the batches are whole again.

    others: SKUs with one request in each round, whose small batches say nothing of a large one.
    """
    card = make_sale(new_sku(), units=4 * BUYERS)
    cards = [make_sale(new_sku(), units=5 * ROUNDS) for _ in range(others)]
    settle, sizes, bearable = settler_module.settle_batch, list[int](), [BEARABLE]

    def settle_if_small(*args: Any, **named: Any) -> Any:
        if named["sku"] != card.sku:  # other tests' lines are settled in the same round
            return settle(*args, **named)
        sizes.append(len(named["requests"]))
        if sizes[-1] > bearable[0]:
            raise error
        return settle(*args, **named)

    monkeypatch.setattr(settler_module, "settle_batch", settle_if_small)
    monkeypatch.setattr(settler_module, "DATABASE_RETRY_SECONDS", 0.0)

    def work(part: str) -> None:
        names = road.queue(card, *(f"{part}-{number}" for number in range(BUYERS)))
        held = Order.objects.filter(request_id__in=names, state="held")
        for number in range(ROUNDS):
            if held.count() == BUYERS:
                return
            for other in cards:
                road.queue(other, f"{part}-{number}")
            worker.work_once()
        pytest.fail(f"{held.count()} of {BUYERS} are held, after batches of {sizes}")

    with road.settler(batch=BUYERS) as worker:
        work("sick")
        assert sizes[0] == BUYERS
        bearable[0] = BUYERS
        for part in ("well", "again", "third"):
            work(part)
    assert sizes[-1] == BUYERS
    assert_books_balance(card)


@EACH_ERROR
def test_holds_that_the_database_does_not_end_in_time_are_ended_in_parts(
    error: psycopg.Error, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_sale(new_sku(), units=BUYERS)
    names = hold(card, buyers=BUYERS)
    let_holds_end(*names)
    expire, sizes = holds.expire_due, list[int]()

    def expire_if_few(cursor: Any, *, sku: str, request_ids: Sequence[str]) -> holds.Changes:
        if sku == card.sku:  # other tests' holds end in the same round
            sizes.append(len(request_ids))
            if sizes[-1] > BEARABLE:
                raise error
        return expire(cursor, sku=sku, request_ids=request_ids)

    monkeypatch.setattr(holds, "expire_due", expire_if_few)
    ended = Order.objects.filter(request_id__in=names, state="expired")
    expirer = Expirer(stopping=lambda: False)
    for _ in range(ROUNDS):
        expirer.work_once()
        if ended.count() == BUYERS:
            break
    expirer.close()
    assert (ended.count(), sizes[0]) == (BUYERS, BUYERS), sizes
    assert_books_balance(card)
