"""How long decisions took is counted of those who only waited their turn. Uses the real servers and a real settler."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from inventory import redis
from inventory.line import reading
from inventory.states import State
from shop.models import Order
from shop.orders import holds
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.paying import hold
from tests.support.shopkeeping import make_sale
from workers.settler import DECISION_SECONDS, Settler

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def settler() -> Iterator[Settler]:
    with road.settler() as worker:
        yield worker


def counted(settler: Settler, card: SaleCard) -> int:
    """Let a settler take a turn; return how many decisions it took the time of."""
    before = sum(DECISION_SECONDS.counts[""])
    settler._take_turn(card.sku, skus=1, probe=False)
    return sum(DECISION_SECONDS.counts[""]) - before


def state(card: SaleCard, name: str) -> State:
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place
    return place.record.state


def test_who_waited_for_a_unit_to_come_back_is_left_out(settler: Settler, new_sku: Callable[[], str]) -> None:
    """The control: who asks for a unit that is free, and who asks after one has come back, is counted."""
    card = make_sale(new_sku(), units=2)
    (ann,) = road.queue(card, "ann")
    assert counted(settler, card) == 1
    hold(card, buyers=1)
    (bob,) = road.queue(card, "bob")
    assert state(card, bob) is State.WAITLISTED
    holds.cancel(ann, buyer="ann")
    (eve,) = road.queue(card, "eve")
    assert counted(settler, card) == 0
    assert [state(card, name) for name in (bob, eve)] == [State.HELD, State.WAITLISTED]
    assert not Order.objects.get(request_id=bob).standby
    holds.cancel(bob, buyer="bob")
    assert counted(settler, card) == 0
    holds.cancel(eve, buyer="eve")
    (zoe,) = road.queue(card, "zoe")
    assert counted(settler, card) == 1
    assert state(card, zoe) is State.HELD
