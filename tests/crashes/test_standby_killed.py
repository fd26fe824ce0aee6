"""Proves that a settler killed anywhere between a unit that came back and the answer to those on standby costs nobody
their place: the first on standby holds it, once, and nobody who came later does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from inventory import redis
from inventory.fault_injection import SETTLER_POINTS, marker
from inventory.line import reading
from inventory.line.admission import Code
from inventory.states import State
from shop.models import Order
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support import road
from tests.support.crashes.extra_shop import own_valkey
from tests.support.crashes.worker_shop import worker_process
from tests.support.shopkeeping import assert_books_balance, make_sale, pay, shop_of
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess

STANDING = 60


@pytest.fixture
def environment(process_environment: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """Work on a Valkey of this test's own, with locks that a dead holder does not keep for long."""
    with own_valkey(tmp_path) as valkey:
        own = {**process_environment, "REDIS_URL": valkey.url, "FAIRDROP_LOCK_TTL_MS": "1500"}
        with shop_of(own):
            yield own


def sold_out_sale(sku: str) -> tuple[SaleCard, list[str]]:
    """Return a sale whose only unit is paid for, and the requests on standby there, the first first."""
    card = make_sale(sku, units=1)
    names = road.queue(card, "first")
    road.settle_line(card)
    pay(*names)
    asks = [road.ask(card, f"standing-{number}", standby=True) for number in range(STANDING)]
    assert {answer.code for answer in road.admit(card, *asks)} == {Code.ON_STANDBY}
    return card, [each.request_id for each in asks]


@pytest.mark.parametrize("point", SETTLER_POINTS)
def test_a_settler_killed_while_a_unit_comes_back(
    point: str, environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    card, names = sold_out_sale(new_sku())
    with ExitStack() as running:
        fault = {**environment, "FAIRDROP_FAULT": f"{point}:kill"}
        victim = running.enter_context(worker_process("settler", fault, folder=tmp_path, name="victim"))
        back = bring_back_until(card, lambda: marker(point) in log_of(victim))
        later = road.ask(card, "later", standby=True)
        assert road.admit(card, later)[0].code == Code.ON_STANDBY
        running.enter_context(worker_process("settler", environment, folder=tmp_path, name="heir"))
        wait_until(lambda: told(names[:back], card) == [State.HELD] * back, what="they are told")
    assert told(names[back:], card) == [State.STANDBY] * (STANDING - back)
    held = Order.objects.filter(sale_id=card.sale_id, state="held").order_by("id")
    assert [order.request_id for order in held] == names[:back]
    assert_books_balance(card)


def bring_back_until(card: SaleCard, struck: Callable[[], bool]) -> int:
    """Let three units come back, and one more whenever all are held and the settler lives on: its turn was over before
    it came to the point. Return how many came back.
    """
    sale_control.restock(card.slug, units=3, actor="olga")
    back = 3

    def reached() -> bool:
        nonlocal back
        if not struck() and Order.objects.filter(sale_id=card.sale_id, state="held").count() == back < STANDING - 1:
            sale_control.restock(card.slug, units=1, actor="olga")
            back += 1
        return struck()

    wait_until(reached, what="the settler is struck")
    return back


def log_of(child: ChildProcess) -> str:
    assert child.log_path is not None
    return child.log_path.read_text()


def told(names: list[str], card: SaleCard) -> list[State | None]:
    found = reading.places(redis.connect(), card.sku, names)
    return [place.record.state if place else None for place in found]
