"""Proves that a line whose fence in Redis fell behind the stock row's goes on by itself.
So it is after a failover to a server whose clock is behind, or after Redis lost the fence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from inventory import redis
from inventory.audit import line
from inventory.exceptions import LockLost
from inventory.line import writing
from inventory.locks.lock import Lock
from inventory.models import Stock
from inventory.redis import keys
from shop.sales.catalogue import SaleCard
from tests.support.road import LOCK_TTL_MS, held_lock, queue, run, settler, take
from tests.support.shopkeeping import assert_books_balance, audit_of, close_sale, make_sale
from workers.settler import Settler

pytestmark = pytest.mark.usefixtures("shop_database")
BUYERS = tuple(f"buyer-{number}" for number in range(8))
FAR_AHEAD = 4 * 10**15  # µs: about the year 2096
# One that is refused and raises the fence, and three batches.
MAX_ROUNDS = 4


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale with a line, whose stock row has seen a fence that Redis does not know."""
    card = make_sale(new_sku(), units=5)
    queue(card, *BUYERS)
    close_sale(card)
    Stock.objects.filter(sku=card.sku).update(fence=FAR_AHEAD)
    return card


def decided(card: SaleCard) -> int:
    """Return how many of a line were answered."""
    return line.look(redis.connect(), card.sku).decided


def worked(worker: Settler, card: SaleCard) -> bool:
    """Let a settler go round once; say whether the whole line is answered."""
    worker.work_once()
    return decided(card) == len(BUYERS)


def test_the_line_goes_on_after_one_refusal(card: SaleCard) -> None:
    with settler(batch=3) as worker:
        worker.work_once()
        assert (decided(card), line.look(redis.connect(), card.sku).in_flight) == (0, 3)
        rounds = next((number for number in range(1, MAX_ROUNDS + 1) if worked(worker, card)), None)
        assert rounds is not None, "the line stands still"
    counts = assert_books_balance(card)
    assert (counts["orders_held"], counts["orders_sold_out"], counts["dead_letters"]) == (5, 3, 0)
    assert Stock.objects.get(sku=card.sku).fence == FAR_AHEAD + 1
    assert run(("EXISTS", keys.hand_outs(card.sku))) == [0]


def test_without_the_healing_it_stands_still(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a settler that only gives its batch back is refused for ever."""
    monkeypatch.setattr(Settler, "_raise_fence", lambda self, sku, lock: self._give_back(sku, lock))
    with settler(batch=3) as worker:
        for _ in range(MAX_ROUNDS):
            worker.work_once()
    assert decided(card) == 0
    assert audit_of(card)["ok"]


def test_who_was_overtaken_raises_nothing(card: SaleCard) -> None:
    sleeper = held_lock(card.sku)
    take(sleeper, batch=3)
    run(("DEL", keys.lock(card.sku)))
    with Lock(redis.connect(), card.sku, ttl_ms=LOCK_TTL_MS) as heir:
        before = run(("GET", keys.fence(card.sku)))
        late = partial(writing.give_back, redis.connect(), card.sku, token=sleeper.token, seen_fence=FAR_AHEAD)
        with pytest.raises(LockLost):
            late()
        assert run(("GET", keys.fence(card.sku))) == before == [str(heir.fence)]
    sleeper.release()


def test_the_fence_in_redis_never_falls(card: SaleCard) -> None:
    with Lock(redis.connect(), card.sku, ttl_ms=LOCK_TTL_MS) as lock:
        writing.give_back(redis.connect(), card.sku, token=lock.token, seen_fence=7)
        assert run(("GET", keys.fence(card.sku))) == [str(lock.fence)]
