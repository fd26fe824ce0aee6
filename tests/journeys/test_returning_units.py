"""Units that nobody pays for come back and are sold to the next in line, all of them, until the last is paid for.

With holds of a minute it takes several of them: `make test-returning`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.db import connection

from shop.buyers import issue_buyer
from shop.catalogue import SaleCard
from shop.models import Order, Sale
from tests.crashes.worker_shop import worker_process
from tests.http_calls import JSON, Buyer, Caller
from tests.shop_processes import settler_process, web_process
from tests.shopkeeping import assert_books_balance, make_sale
from tests.waiting import wait_until

HOLD_SECONDS = int(os.environ.get("RETURNING_UNITS_HOLD_SECONDS", "4"))
OFFERED_AGAIN_SECONDS = 2.0
# Of ten holders, in the order of the line, these never pay.
NEVER_PAY = frozenset({1, 3, 6, 8})
# Generations of holds until the last of 100 units is paid for: each leaves 40 % of the units of the one before.
GENERATIONS = 9
START_SECONDS = 60.0
HANDS = 8
# When units came free, and when units were held, each in the order of the books, by the database's clock.
RETURNS = """
SELECT extract(epoch FROM c.at)::float FROM inventory_change c, generate_series(1, c.quantity)
WHERE c.sale_id = %s AND c.from_state = 'held' AND c.to_state IN ('expired', 'cancelled') ORDER BY c.change_no
"""
HOLDS = """
SELECT extract(epoch FROM c.at)::float FROM inventory_change c, generate_series(1, c.quantity)
WHERE c.sale_id = %s AND c.from_state = 'queued' AND c.to_state = 'held' ORDER BY c.change_no
"""


pytestmark = pytest.mark.timeout(240 + 2 * GENERATIONS * HOLD_SECONDS)


@dataclass
class Crowd:
    """A sale, and everybody in its line in the order of the line; buyers by their request."""

    card: SaleCard
    buyers: dict[str, Buyer] = field(default_factory=dict)
    line: list[str] = field(default_factory=list)

    def count(self, state: str) -> int:
        """Return how many of its orders are in this state."""
        return Order.objects.filter(sale_id=self.card.sale_id, state=state).count()


@pytest.fixture
def start(process_environment: Mapping[str, str], tmp_path: Path) -> Iterator[Callable[..., Caller]]:
    """Return a function that starts the web process, two settlers and these workers; all end with the test."""
    with ExitStack() as running:

        def begin(*workers: str) -> Caller:
            for number in (1, 2):
                name = f"settler-{number}"
                running.enter_context(settler_process(process_environment, folder=tmp_path, name=name))
            for worker in workers:
                running.enter_context(worker_process(worker, process_environment, folder=tmp_path))
            return running.enter_context(web_process(process_environment, folder=tmp_path))

        yield begin


def open_line(web: Caller, sku: str, *, units: int, buyers: int) -> Crowd:
    """Let `buyers` ask for a unit each, over HTTP, while the sale stands still; nobody is decided yet."""
    crowd = Crowd(make_sale(sku, units=units, room=buyers, hold_seconds=HOLD_SECONDS))
    path = f"/api/v1/sales/{crowd.card.slug}"
    wait_until(lambda: web.get(path).status == 200, timeout_seconds=START_SECONDS, what="the sale is shown")
    places: list[tuple[int, str]] = []

    def ask(_number: int) -> None:
        buyer = Buyer(*issue_buyer())
        answer = web.ask(crowd.card.slug, buyer)
        assert answer.status == 202, answer.body
        place = answer.json()
        crowd.buyers[place["request_id"]] = buyer
        places.append((place["seq"], place["request_id"]))

    with ThreadPoolExecutor(HANDS) as hands:
        list(hands.map(ask, range(buyers)))
    crowd.line = [name for _, name in sorted(places)]
    return crowd


def pay_until_sold(web: Caller, crowd: Crowd, *, units: int, timeout_seconds: float) -> bool:
    """Let six of ten holders pay, over HTTP, until every unit is paid for; say whether that came to pass in time."""
    deadline, seen = time.monotonic() + timeout_seconds, set[str]()
    with ThreadPoolExecutor(HANDS) as hands:
        while crowd.count("paid") < units:
            if time.monotonic() >= deadline:
                return False
            held = Order.objects.filter(sale_id=crowd.card.sale_id, state="held").order_by("id")
            fresh = [name for name in held.values_list("request_id", flat=True) if name not in seen]
            paying = []
            for name in fresh:
                if len(seen) % 10 not in NEVER_PAY:
                    paying.append(name)
                seen.add(name)
            for answer in hands.map(lambda name: pay(web, crowd, name), paying):
                # On a machine that stalls for longer than a hold lasts, its end may come first.
                assert answer in ("paid", "refunded") or "this request is expired" in answer
            time.sleep(0.05)
    return True


def pay(web: Caller, crowd: Crowd, name: str) -> str:
    """Pay for a hold and return the state it is in then."""
    headers = {**JSON, **crowd.buyers[name].headers}
    answer = web.call("POST", f"/api/v1/requests/{name}/payment", body="{}", headers=headers)
    return str(answer.json().get("state", answer.body))


def moments(query: str, crowd: Crowd) -> list[float]:
    """Return the moments that a query finds for the sale."""
    with connection.cursor() as cursor:
        cursor.execute(query, [crowd.card.sale_id])
        return [row[0] for row in cursor.fetchall()]


def assert_sold_to_the_line(crowd: Crowd, *, units: int) -> None:
    """Fail unless all units are sold, each that came back was offered again in time, and always to the next in line."""
    stock = Sale.objects.select_related("stock").get(pk=crowd.card.sale_id).stock
    assert (stock.available, stock.held, stock.sold) == (0, 0, units), "not every unit is sold"
    returned, offered = moments(RETURNS, crowd), moments(HOLDS, crowd)
    assert len(offered) == units + len(returned)
    # The first holds take what was free; from then on each takes what came back first.
    waits = [hold - back for back, hold in zip(returned, offered[units:], strict=True)]
    assert min(waits, default=1) >= 0
    assert max(waits, default=0) <= OFFERED_AGAIN_SECONDS, sorted(waits)[-5:]
    orders = Order.objects.filter(sale_id=crowd.card.sale_id, hold_expires_at__isnull=False).order_by("id")
    served = list(orders.values_list("request_id", flat=True))
    assert served == crowd.line[: len(served)], "somebody was passed over"
    print(f"{len(returned)} units came back; the longest wait for the next hold was {max(waits, default=0):.2f} s")


def test_every_unit_is_sold_in_the_end(
    start: Callable[..., Caller], shop_database: None, new_sku: Callable[[], str]
) -> None:
    units, buyers = 100, 3_000
    web = start("expirer")
    crowd = open_line(web, new_sku(), units=units, buyers=buyers)
    sold = pay_until_sold(web, crowd, units=units, timeout_seconds=START_SECONDS + GENERATIONS * (HOLD_SECONDS + 2))
    assert sold, f"{crowd.count('paid')} paid, {crowd.count('held')} held"
    assert_sold_to_the_line(crowd, units=units)
    assert crowd.count("expired") >= units // 2  # the control of the crowd: many did not pay
    # Nothing can come back any more, so whoever waits is told.
    left = buyers - units - crowd.count("expired") - crowd.count("refunded")
    wait_until(lambda: crowd.count("sold_out") == left, timeout_seconds=START_SECONDS, what="the line is told")
    assert assert_books_balance(crowd.card)["sold"] == units


def test_without_an_expirer_units_stay_unsold(
    start: Callable[..., Caller], shop_database: None, new_sku: Callable[[], str]
) -> None:
    """The control: nobody ends holds, so what is not paid for never comes back, and the same check sees it."""
    units = 10
    web = start()
    crowd = open_line(web, new_sku(), units=units, buyers=30)
    assert not pay_until_sold(web, crowd, units=units, timeout_seconds=HOLD_SECONDS + OFFERED_AGAIN_SECONDS + 2)
    assert crowd.count("held") == 4
    with pytest.raises(AssertionError, match="not every unit is sold"):
        assert_sold_to_the_line(crowd, units=units)
