"""A unit that came back, and that nobody gives to the first who waits, is seen by the reconciler's gauges."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inventory import redis
from inventory.line.snapshot import look_at
from shop.models import Sale
from shop.sales.catalogue import SaleCard
from tests.support.metrics import samples_of
from tests.support.road import rewrite_sale, settle_line
from tests.support.shopkeeping import fill_line, make_sale
from tests.support.stripe_shop import expire
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


def test_a_line_of_a_sale_that_was_paused_is_late_from_its_end_on(gauges: Gauges, new_sku: Callable[[], str]) -> None:
    """However long the first had waited. The control: until then nobody is late."""
    card = make_sale(new_sku(), units=1)
    fill_line(card, buyers=1)
    rewrite_sale(card, state="paused")
    assert [oldest_seconds(gauges, card) for _ in range(2)] == [0, 0]
    rewrite_sale(card, closes_us=1)
    assert oldest_seconds(gauges, card) == 0  # seen for the first time
    assert oldest_seconds(gauges, card) > 0
