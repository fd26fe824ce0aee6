"""Redis forgets a retired sale step by step, and nothing that a sale of the same SKU still needs.
Uses the real servers; its controls show what would happen without each guard.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from inventory import redis
from inventory.line import forgetting, reading
from inventory.locks.lock import Lock
from inventory.redis import keys
from inventory.states import State
from shop.models import Order, Sale
from shop.staff import retiring
from tests.support import road
from tests.support.past_sales import keys_left, next_sale, over, reconcile, sold
from tests.support.shopkeeping import assert_books_balance, fill_line, make_sale, pay_all
from workers.reconciler.loop import Reconciler

pytestmark = pytest.mark.usefixtures("shop_database")


def test_every_key_of_a_sku_goes_with_its_last_sale(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    road.run(
        ("HSET", keys.hand_outs(card.sku), "x", 1),
        ("SADD", keys.lock_names(), card.sku),
        ("HSET", keys.sales(card.sku), 10**9, "of a database that was restored to before it"),
        ("HSET", keys.lock_statistics(card.sku), "holds", 1),
    )
    assert len(keys_left(card.sku)) >= 8
    assert retiring.retire(card.slug, actor="olga", reason="over") == "retired"
    assert keys_left(card.sku) == []


def test_a_scheduled_sale_keeps_its_sku(new_sku: Callable[[], str]) -> None:
    """The control: with a sale that comes, only the old one's part goes."""
    card = sold(new_sku())
    coming = next_sale(card, opens_in=timedelta(hours=1))
    retiring.retire(card.slug, actor="olga")
    left = keys_left(card.sku)
    assert {keys.stock(card.sku), keys.sales(card.sku), keys.skus()} <= set(left)
    (sales,) = road.run(("HKEYS", keys.sales(card.sku)))
    assert {int(field.partition(":")[0]) for field in sales} == {coming.sale_id}


def test_of_a_sku_that_lives_on_the_old_sale_goes_and_the_new_one_stays(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku(), units=5, buyers=3)
    fresh = next_sale(card)
    names = road.queue(fresh, "ann", "bob")
    road.settle_line(fresh)
    road.queue(fresh, "carl")
    retiring.retire(card.slug, actor="olga")
    (records, live) = road.run(("HKEYS", keys.records(card.sku)), ("HKEYS", keys.live_units(card.sku)))
    assert set(names) < set(records)
    assert len(records) == 3
    assert {field.partition(":")[0] for field in live} == {str(fresh.sale_id)}
    road.settle_line(fresh)
    assert_books_balance(fresh)
    reconciler = Reconciler(redis.connect(), stopping=lambda: False)
    assert reconciler.compare(card.sku, sale_ids=[fresh.sale_id]) == []
    assert_books_balance(fresh)


def test_the_books_of_the_new_sale_balance_while_the_old_one_is_forgotten_step_by_step(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = sold(new_sku(), units=40, buyers=40)
    fresh = next_sale(card)
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    monkeypatch.setattr(forgetting, "PAGE", 10)
    steps = []

    def step() -> None:
        steps.append(int(road.run(("HLEN", keys.records(card.sku)))[0]))
        assert_books_balance(fresh)

    retiring.forget_retired(card.sku, throttle=step)
    assert len(steps) >= 4
    assert steps[-1] == 0


def test_a_sale_that_is_made_meanwhile_is_never_forgotten(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card, fresh, forget_sku = sold(new_sku()), [], forgetting.forget_sku

    def forget_late(*args: Any, **known: Any) -> bool:
        fresh.append(next_sale(card))
        return forget_sku(*args, **known)

    monkeypatch.setattr(forgetting, "forget_sku", forget_late)
    assert "the reconciler lets Redis forget it" in retiring.retire(card.slug, actor="olga")
    assert road.run(("HEXISTS", keys.sales(card.sku), fresh[0].sale_id)) == [1]
    # The control: the next look sees the new sale, and forgets the old one alone.
    assert retiring.forget_retired(card.sku)
    assert road.run(("HEXISTS", keys.sales(card.sku), fresh[0].sale_id)) == [1]
    assert road.run(("HEXISTS", keys.sales(card.sku), card.sale_id)) == [0]


def test_a_request_that_waits_is_never_forgotten(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    names = fill_line(card, buyers=2)
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    assert not retiring.forget_retired(card.sku)
    assert {place.record.state for place in reading.places(redis.connect(), card.sku, names) if place} == {State.QUEUED}
    road.settle_line(card)
    pay_all(card)
    road.settle_line(card)
    assert retiring.forget_retired(card.sku)
    assert keys_left(card.sku) == []
    assert Order.objects.filter(sale_id=card.sale_id).count() == 2


def test_a_request_that_waits_in_a_sku_that_lives_on_is_never_forgotten(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    names = fill_line(card, buyers=2)
    card = over(card)
    next_sale(card)
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    assert not retiring.forget_retired(card.sku)
    assert all(reading.places(redis.connect(), card.sku, names))


def test_a_lock_that_somebody_holds_is_left_to_them(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    with Lock(redis.connect(), card.sku, ttl_ms=road.LOCK_TTL_MS):
        assert retiring.retire(card.slug, actor="olga") == "retired; the reconciler lets Redis forget it"
        assert keys.records(card.sku) in keys_left(card.sku)
    reconcile()
    assert keys_left(card.sku) == []


def count_late(sku: str) -> None:
    """Send what a settler counted about its lock."""
    road.run(("HSET", keys.lock_statistics(sku), "holds", 1), ("SADD", keys.lock_names(), sku))


def test_what_a_settler_counts_late_is_forgotten_by_the_reconciler(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    retiring.retire(card.slug, actor="olga")
    count_late(card.sku)
    reconcile()
    assert keys_left(card.sku) == []


def test_what_a_settler_counts_while_a_sku_is_being_forgotten_goes_with_it(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    retiring.mark_retired(card.slug, actor="olga")
    assert retiring.forget_retired(card.sku, throttle=lambda: count_late(card.sku))
    assert keys_left(card.sku) == []
