"""A round of the expirer over many SKUs says that it goes on. Real stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inventory.heartbeats import Heartbeat
from shop.models import Order
from tests.support.road import settle_line
from tests.support.shopkeeping import fill_line, let_holds_end, make_sale
from workers.management.commands.run_worker import run_expirer
from workers.process_loop import StopFlag

pytestmark = pytest.mark.usefixtures("shop_database")


class Listener(Heartbeat):
    """Keeps what is said of the process, and stops it after its first step."""

    def __init__(self, stop: StopFlag) -> None:
        self.said: list[dict[str, Any]] = []
        self._stop = stop

    def note(self, **said: Any) -> None:
        self.said.append(said)
        if "done" in said:
            self._stop.set()

    def end(self) -> None:
        """Nothing was written anywhere."""


def test_a_long_round_is_not_taken_for_a_dead_process(new_sku: Callable[[], str]) -> None:
    names = []
    for card in (make_sale(new_sku(), units=1) for _ in range(2)):
        names += fill_line(card, buyers=1, named=f"of-{card.sku}")
        settle_line(card)
    let_holds_end(*names)
    stop = StopFlag()
    heartbeat = Listener(stop)
    run_expirer(stop, heartbeat)
    assert {order.state for order in Order.objects.filter(request_id__in=names)} == {"expired"}
    step = heartbeat.said[1:-1]  # between the first sign and the end of the step
    assert len(step) >= 2
    assert all(said == {"busy": True} for said in step)
