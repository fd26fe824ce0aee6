"""Proves that a reconciler killed or frozen while it retires a sale leaves nothing that the next one does not finish.
The sale is marked before Redis forgets anything, so nobody primes it in between.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from secrets import token_hex

import pytest
from django.utils import timezone

from inventory.exceptions import SaleNotPrimed
from inventory.fault_injection import RETIRING_POINTS
from inventory.redis import keys
from shop.models import Order, Sale, StaffAct
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support import road
from tests.support.crashes.worker_shop import OwnStores, WorkerShop, drifts, own_stores, wake, worker_shop
from tests.support.past_sales import keys_left
from tests.support.shopkeeping import assert_books_balance, fill_line, make_sale, pay_all
from tests.support.waiting import wait_until

# More than one step of forgetting.
BUYERS, UNITS = 1_200, 5


@pytest.fixture(scope="module")
def stores(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStores]:
    """Run both stores for all tests of this module: a reconciler looks at every sale there is."""
    with own_stores(os.environ, folder=tmp_path_factory.mktemp("retiring")) as own:
        yield own


@pytest.fixture
def shop(stores: OwnStores, shop_database: None, tmp_path: Path) -> Iterator[WorkerShop]:
    """Work on these stores; what a test starts ends with it."""
    with worker_shop(stores, folder=tmp_path) as own:
        yield own


@pytest.fixture
def card(shop: WorkerShop) -> SaleCard:
    """Return a settled sale with many orders that ended two days ago; nobody has retired it."""
    card = make_sale(f"past-{token_hex(4)}", units=UNITS, line_capacity=BUYERS)
    fill_line(card, buyers=BUYERS)
    road.settle_line(card)
    pay_all(card)
    road.settle_line(card)
    ended = timezone.now() - timedelta(days=2)
    Sale.objects.filter(pk=card.sale_id).update(opens_at=ended - timedelta(hours=1), closes_at=ended)
    return card


def next_sale(card: SaleCard) -> SaleCard:
    """Make a sale of the same SKU that is open, and let somebody into it."""
    first, now = Sale.objects.get(pk=card.sale_id), timezone.now()
    Sale.objects.create(
        slug=f"{card.slug}-again", product=first.product, stock=first.stock, title="Again", price=first.price,
        opens_at=now - timedelta(seconds=5), closes_at=now + timedelta(hours=1),
    )  # fmt: skip
    sale_control.restock(f"{card.slug}-again", units=1, actor="test")
    fresh = catalogue.find_sale(f"{card.slug}-again")
    priming.prime_sale(fresh.slug)
    road.queue(fresh, "ann")
    road.settle_line(fresh)
    return fresh


def strike(shop: WorkerShop, *, point: str, action: str, heal: Callable[[], None]) -> None:
    """Let a reconciler be struck at `point` and a healthy one finish, until `heal` returns."""
    victim = shop.start("reconciler", name="victim", fault=f"{point}:{action}")
    shop.wait_until_struck(victim, point)
    if action == "kill":
        assert victim.wait(timeout_seconds=120)
        assert victim.exit_code == -signal.SIGKILL
    healthy = shop.start("reconciler", name="healthy")
    heal()
    if action == "stop":
        wake(victim)
        victim.ask_to_stop()
        assert victim.wait(timeout_seconds=120)
        assert victim.exit_code == 0
    assert healthy.running


@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("point", RETIRING_POINTS)
def test_a_sku_forgotten_by_half_is_forgotten_whole(point: str, action: str, shop: WorkerShop, card: SaleCard) -> None:
    def heal() -> None:
        wait_until(lambda: not keys_left(card.sku), what=lambda: f"Redis still has {keys_left(card.sku)}: that it")

    strike(shop, point=point, action=action, heal=heal)
    heal()  # a process that was counting its lock meanwhile lists the name again, and the reconciler finds that
    assert StaffAct.objects.filter(sale_id=card.sale_id, act="retire").count() == 1
    assert Order.objects.filter(sale_id=card.sale_id, state="paid").count() == UNITS
    assert Order.objects.filter(sale_id=card.sale_id).count() == BUYERS


@pytest.mark.parametrize("point", RETIRING_POINTS)
def test_a_sale_forgotten_by_half_goes_and_the_one_beside_it_stays(
    point: str, shop: WorkerShop, card: SaleCard
) -> None:
    fresh = next_sale(card)

    def heal() -> None:
        known = ("HEXISTS", keys.sales(card.sku), card.sale_id)
        wait_until(lambda: road.run(known) == [0], what="the sale goes")

    strike(shop, point=point, action="kill", heal=heal)
    left = (("HLEN", keys.records(card.sku)), ("HLEN", keys.live_units(card.sku)))
    wait_until(lambda: road.run(*left) == [1, 1], what="all of it goes")
    assert_books_balance(fresh)
    assert drifts(fresh.slug) == []


def test_nobody_primes_what_is_marked_and_not_yet_forgotten(shop: WorkerShop, card: SaleCard) -> None:
    victim = shop.start("reconciler", name="victim", fault="before_forget:kill")
    shop.wait_until_struck(victim, "before_forget")
    road.forget(card)
    with pytest.raises(SaleNotPrimed):
        priming.prime_card(card)
    assert keys.stock(card.sku) not in keys_left(card.sku)


def test_without_a_second_reconciler_the_half_stays(shop: WorkerShop, card: SaleCard) -> None:
    """The control: killed at the point between, it leaves every record, and nothing else takes them away."""
    victim = shop.start("reconciler", name="victim", fault="before_forget:kill")
    shop.wait_until_struck(victim, "before_forget")
    assert victim.wait(timeout_seconds=120)
    assert Sale.objects.get(pk=card.sale_id).retired_at is not None
    assert road.run(("HLEN", keys.records(card.sku))) == [BUYERS]
