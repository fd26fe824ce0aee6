"""Proves that a reconciler or an expirer killed or frozen at any named place leaves nothing half done, nothing twice.
A healthy one finishes what the other began. Fails when a name was never reached.
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from django.test.utils import override_settings

from inventory import reconcile_requests, redis
from inventory.fault_injection import EXPIRER_POINTS, RECONCILER_POINTS
from inventory.line import reading, writing
from inventory.models import StockMovement
from inventory.redis import keys
from shop.models import Order, OrderEvent
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.crashes.worker_shop import OwnStores, WorkerShop, drifts, own_stores, wake, worker_shop
from tests.support.servers.stores import ROOT
from tests.support.shopkeeping import assert_books_balance, fill_line, let_holds_end, make_sale
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess

UNITS, BUYERS = 30, 50
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def stores(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStores]:
    """Run both stores for all tests of this module: workers look at every SKU there is."""
    with own_stores(os.environ, folder=tmp_path_factory.mktemp("workers")) as own:
        yield own


@pytest.fixture
def shop(stores: OwnStores, shop_database: None, tmp_path: Path) -> Iterator[WorkerShop]:
    """Work on these stores; what a test starts ends with it."""
    with worker_shop(stores, folder=tmp_path) as own:
        yield own


@pytest.fixture
def card(shop: WorkerShop) -> SaleCard:
    """Return a sale whose units are all held, with a line behind them; it comes before every other by name."""
    card = make_sale(f"a{9999 - next(_NUMBERS)}-{token_hex(4)}", units=UNITS)
    fill_line(card, buyers=BUYERS)
    road.settle_line(card)
    return card


def held(card: SaleCard) -> list[str]:
    """Return the requests that are held, the first of the line first."""
    orders = Order.objects.filter(sale_id=card.sale_id, state="held").order_by("seq")
    return list(orders.values_list("request_id", flat=True))


def end(victim: ChildProcess, action: str) -> None:
    """Let a victim die or, if it was frozen, go on and stop in order."""
    if action == "kill":
        assert victim.wait(timeout_seconds=120)
        assert victim.exit_code == -signal.SIGKILL
        return
    wake(victim)
    victim.ask_to_stop()
    assert victim.wait(timeout_seconds=120)
    assert victim.exit_code == 0


def strike(shop: WorkerShop, worker: str, *, point: str, action: str, heal: Callable[[], None]) -> ChildProcess:
    """Let a worker be struck at `point` and a healthy one finish, until `heal` returns; return the healthy one."""
    victim = shop.start(worker, name="victim", fault=f"{point}:{action}")
    shop.wait_until_struck(victim, point)
    if action == "kill":
        end(victim, action)
    healthy = shop.start(worker, name="healthy")
    heal()
    if action == "stop":
        end(victim, action)
    return healthy


# --- the reconciler -------------------------------------------------------------------------------------------------


def make_drift(card: SaleCard) -> dict[str, Any]:
    """Make drift of every kind that is mended; return the snapshot that mending it must come to."""
    right = road.snapshot(card)
    unknown = held(card)[:5]
    lost = road.run(("ZRANGE", keys.line(card.sku), 0, 2))[0]
    buyers = [right[keys.records(card.sku)][name].split("|")[4] for name in unknown]
    fields = [writing.live_field(sale_id=card.sale_id, buyer=buyer) for buyer in buyers]
    road.run(
        ("HDEL", keys.records(card.sku), *unknown),
        ("HDEL", keys.live_units(card.sku), *fields[:3]),
        ("ZREM", keys.line(card.sku), *lost),
        ("HINCRBY", keys.stock(card.sku), "queued", 4),
        ("HINCRBY", keys.live_units(card.sku), f"{card.sale_id}:nobody", 2),
    )
    for name in lost:
        right[keys.records(card.sku)][name] += "|r"
    assert road.snapshot(card) != right
    return right


def wait_until_mended(card: SaleCard, right: dict[str, Any]) -> None:
    wait_until(lambda: road.snapshot(card) == right, what="all is mended")
    assert drifts(card.slug) == []
    assert_books_balance(card)


@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("point", RECONCILER_POINTS)
def test_a_reconciler_struck_there_leaves_the_rest_to_the_next(
    point: str, action: str, shop: WorkerShop, card: SaleCard
) -> None:
    right = make_drift(card)
    healthy = strike(shop, "reconciler", point=point, action=action, heal=lambda: wait_until_mended(card, right))
    assert road.snapshot(card) == right
    assert healthy.running


def test_three_reconcilers_at_once_mend_no_more_than_one(shop: WorkerShop, card: SaleCard) -> None:
    right = make_drift(card)
    for number in range(3):
        shop.start("reconciler", name=f"reconciler-{number}")
    wait_until_mended(card, right)


def test_without_a_reconciler_the_drift_stays(shop: WorkerShop, card: SaleCard) -> None:
    """The control: a settler and an expirer come and go, and mend nothing of it."""
    make_drift(card)
    kinds = {each["kind"] for each in drifts(card.slug)}
    assert kinds == {"unknown_order", "lost"}
    expirer = shop.start("expirer")
    due = held(card)[:1]
    let_holds_end(*due)
    wait_until(Order.objects.filter(request_id__in=due, state="expired").exists, what="the expirer has worked")
    with road.settler() as settler:
        settler.work_once()
    expirer.stop()
    assert {each["kind"] for each in drifts(card.slug)} >= {"unknown_order", "lost"}


# --- the expirer ----------------------------------------------------------------------------------------------------


def make_due(card: SaleCard) -> list[str]:
    """Let the time of two thirds of the holds be over; return the requests."""
    names = held(card)[: UNITS * 2 // 3]
    let_holds_end(*names)
    return names


def wait_until_expired(card: SaleCard, names: list[str]) -> None:
    """Return when every buyer was told that the hold is over."""

    def told() -> bool:
        places = reading.places(redis.connect(), card.sku, names)
        return {place.record.state for place in places if place} == {"expired"}

    wait_until(told, what="all who are due have expired")


def assert_ended_once(card: SaleCard, names: list[str]) -> None:
    """Fail unless exactly `names` expired, each with one release and one row of history, and Redis says the same."""
    orders = Order.objects.filter(sale_id=card.sale_id)
    assert set(orders.filter(state="expired").values_list("request_id", flat=True)) == set(names)
    releases = StockMovement.objects.filter(stock__sku=card.sku, kind="release").values_list("request_id", flat=True)
    assert sorted(releases) == sorted(names)
    events = OrderEvent.objects.filter(order__in=orders, to_state="expired", actor="expirer")
    assert sorted(events.values_list("order__request_id", flat=True)) == sorted(names)
    with override_settings(LOCK_TTL_MS=600_000):  # no settler runs: a line may wait so long with units free
        counts = assert_books_balance(card)
    assert (counts["available"], counts["held"]) == (len(names), UNITS - len(names))
    assert drifts(card.slug) == []


@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("point", EXPIRER_POINTS)
def test_an_expirer_struck_there_ends_every_hold_once_all_the_same(
    point: str, action: str, shop: WorkerShop, card: SaleCard
) -> None:
    names = make_due(card)
    shop.start("reconciler")  # it tells the line what the one that was struck had committed and not told
    healthy = strike(shop, "expirer", point=point, action=action, heal=lambda: wait_until_expired(card, names))
    assert healthy.running
    assert_ended_once(card, names)


@pytest.mark.parametrize("expirers", [1, 3])
def test_three_expirers_at_once_end_no_more_than_one(expirers: int, shop: WorkerShop, card: SaleCard) -> None:
    started = [shop.start("expirer", name=f"expirer-{number}") for number in range(expirers)]
    names = make_due(card)
    wait_until_expired(card, names)
    assert all(expirer.running for expirer in started)
    assert_ended_once(card, names)


def test_without_an_expirer_nothing_ends(shop: WorkerShop, card: SaleCard) -> None:
    """The control: a settler and a reconciler end no hold, however long it is over."""
    names = make_due(card)
    shop.start("reconciler")
    client = redis.connect()
    reconcile_requests.ask(client, card.sku, actor="test")
    wait_until(lambda: (reconcile_requests.last(client, card.sku) or {})["state"] == reconcile_requests.DONE)
    with road.settler() as settler:
        settler.work_once()
    assert drifts(card.slug) == []
    assert set(held(card)) >= set(names)


def test_every_place_is_in_the_code_once() -> None:
    calls = [
        ast.literal_eval(node.args[0])
        for path in sorted((ROOT / "workers").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "fault_point"
    ]
    points = EXPIRER_POINTS + RECONCILER_POINTS
    assert sorted(call for call in calls if call in points) == sorted(points)
