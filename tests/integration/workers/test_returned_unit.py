"""A unit that came back, and that nobody gives to the first who waits, is seen by the reconciler's gauges."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.test import override_settings

from inventory import redis
from inventory.line.snapshot import look_at
from inventory.redis import keys
from shop.models import Sale
from shop.sales.catalogue import SaleCard
from shop.sales.priming import prime_sale
from tests.support.metrics import samples_of
from tests.support.road import forget, rewrite_sale, run, settle_line
from tests.support.shopkeeping import fill_line, make_sale
from tests.support.stripe_shop import expire
from tests.support.waiting import wait_until
from workers.reconciler.gauges import Gauges

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def gauges() -> Gauges:
    return Gauges()


def seconds_of(gauges: Gauges, card: SaleCard, *, name: str) -> float:
    """Return what a gauge says of a SKU after one more look."""
    sales = Sale.objects.select_related("stock").filter(pk=card.sale_id)
    gauges.note(list(sales), look_at(redis.connect(), [card.sku]))
    return samples_of("".join(gauges.collect()))[f"fairdrop_{name}_seconds{{{card.sku}}}"]


def idle_seconds(gauges: Gauges, card: SaleCard) -> float:
    """Return for how long the gauges have seen a free unit and one who waits, after one more look."""
    return seconds_of(gauges, card, name="returned_unit_idle")


def oldest_seconds(gauges: Gauges, card: SaleCard) -> float:
    """Return for how long the first has waited that could be decided, after one more look."""
    return seconds_of(gauges, card, name="line_oldest")


def test_a_returned_unit_that_nobody_gives_out_is_idle(gauges: Gauges, new_sku: Callable[[], str]) -> None:
    """The controls: not while it is held, nor once it was given to the one who waits."""
    card = make_sale(new_sku(), units=1)
    first, _ = fill_line(card, buyers=2)
    settle_line(card)
    assert [idle_seconds(gauges, card) for _ in range(2)] == [0, 0]
    expire(first, sku=card.sku)
    assert idle_seconds(gauges, card) == 0  # seen for the first time
    assert idle_seconds(gauges, card) > 0
    settle_line(card)
    assert idle_seconds(gauges, card) == 0


def test_one_who_only_waits_their_turn_makes_no_unit_idle(gauges: Gauges, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    fill_line(card, buyers=1)
    assert [idle_seconds(gauges, card) for _ in range(2)] == [0, 0]


def test_after_a_loss_nobody_is_late_until_tickets_had_time_to_come(gauges: Gauges, new_sku: Callable[[], str]) -> None:
    """The control: from then on it is counted, and only from then."""
    card = make_sale(new_sku(), units=1)
    with override_settings(RESTORE_GRACE_SECONDS=600.0):
        forget(card)
        prime_sale(card.slug)
    fill_line(card, buyers=1)
    asked = time.monotonic()
    assert [oldest_seconds(gauges, card) for _ in range(2)] == [0, 0]
    over = time.monotonic()
    ((seconds, micros),) = run(("TIME",))
    run(("HSET", keys.stock(card.sku), "decide_from_us", seconds * 1_000_000 + micros))
    late = wait_until(lambda: oldest_seconds(gauges, card), what="somebody is late")
    assert late <= time.monotonic() - over
    run(("HSET", keys.stock(card.sku), "decide_from_us", 0))
    assert oldest_seconds(gauges, card) >= over - asked


def test_a_line_of_a_sale_that_was_paused_is_late_from_its_end_on(gauges: Gauges, new_sku: Callable[[], str]) -> None:
    """However long the first had waited. The control: until then nobody is late."""
    card = make_sale(new_sku(), units=1)
    fill_line(card, buyers=1)
    rewrite_sale(card, state="paused")
    assert [oldest_seconds(gauges, card) for _ in range(2)] == [0, 0]
    rewrite_sale(card, closes_us=1)
    assert oldest_seconds(gauges, card) == 0  # seen for the first time
    assert oldest_seconds(gauges, card) > 0
