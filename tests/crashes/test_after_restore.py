"""Proves that a database restored in mid-sale gets back what it lost: by pg_dump, with Redis as it was, older and
empty, and with after_restore killed at every step. The control: without it the lost units are sold a second time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from inventory import redis
from inventory.fault_injection import RESTORE_POINTS, marker
from inventory.line import reading, writing
from inventory.line.admission import Code
from inventory.models import StockMovement
from inventory.records import StockFigures
from inventory.redis import keys
from inventory.states import AFTER_RESTORE, PauseReason, Reason, State
from shop import buyers
from shop.models import Order, Sale
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge, Event
from shop.staff import sale_control
from tests.support import paying, road
from tests.support.crashes.restored_shop import (
    WITH_UNITS,
    Restored,
    assert_all_is_right,
    look,
    restored_database,
    restored_shop,
    run_program,
    states_of,
)
from tests.support.crashes.worker_shop import OwnStores, own_stores
from tests.support.servers.least_rights import addresses, forget_refusals, make_users, refused_by_redis
from tests.support.servers.stores import ROOT
from tests.support.shopkeeping import assert_books_balance, audit_of, make_sale, put_away, shop_of

# More than one page of everything.
MANY = int(os.environ.get("RESTORED_ORDERS", "2500"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("restoring")


@pytest.fixture(scope="module")
def stores(django_db_setup: None, folder: Path) -> Iterator[OwnStores]:
    """Run both stores for all tests of this module: every sale there is gets paused."""
    with own_stores(os.environ, folder=folder) as own:
        yield own


@pytest.fixture
def restored(stores: OwnStores, shop_database: None, folder: Path) -> Iterator[Restored]:
    with shop_of(stores.environment):
        with restored_shop(stores, folder=folder / "own-valkey") as found:
            yield found
        forget(found)


@pytest.fixture
def older(stores: OwnStores, shop_database: None, folder: Path) -> Iterator[Restored]:
    """The same, with a Redis that was restored as well."""
    with shop_of(stores.environment):
        with restored_shop(stores, folder=folder / "own-valkey", redis_is_older=True) as found:
            yield found
        forget(found)


def forget_all() -> None:
    redis.run_commands(redis.connect(), [("FLUSHALL",)])


def forget(found: Restored) -> None:
    """Leave no live sale and no charge to the next test, in the database that was lost."""
    forget_all()
    put_away([found.card.sku])
    Event.objects.all().delete()
    Charge.objects.all().delete()


def kinds(found: dict[str, Any]) -> Counter[str]:
    return Counter(loss["kind"] for loss in found["losses"])


def test_each_lost_order_charge_and_buyer_is_named_and_nothing_is_changed(restored: Restored) -> None:
    orders = Order.objects.count()
    found = look()
    missing = {loss["name"]: loss for loss in found["losses"] if loss["kind"] == "order_missing"}
    assert set(missing) == set(restored.all_lost)
    assert missing[restored.lost["paid"][1]]["buyer"] == "lost-paid_____-0000001"
    assert sum(loss["units"] for loss in missing.values()) == WITH_UNITS
    older = {loss["name"] for loss in found["losses"] if loss["kind"] == "order_older"}
    assert older == set(restored.kept[1:3])
    assert kinds(found)["charge_newer"] == kinds(found)["stock_older"] == 1
    assert kinds(found)["charge_unknown"] == 3  # of two lost orders and the one that paid after the backup
    assert look() == found
    assert Order.objects.count() == orders


def test_every_sale_is_paused_with_its_reason_before_anything_else(restored: Restored) -> None:
    found = look()
    assert restored.card.slug in found["paused"]
    assert Sale.objects.get(slug=restored.card.slug).pause_reason == PauseReason.AFTER_RESTORE
    assert road.admit(restored.card, road.ask(restored.card, "newcomer"))[0].code == Code.PAUSED
    page = Client().get(reverse("sale", args=[restored.card.slug]))
    assert str(PauseReason.AFTER_RESTORE) in page.content.decode()


def test_what_is_safe_comes_back_and_the_sale_goes_on_where_it_was(restored: Restored) -> None:
    found = look("--bring-back")
    assert found["losses"] == []
    assert_all_is_right(restored)
    again = StockMovement.objects.filter(actor=AFTER_RESTORE, kind="hold", reason=Reason.BROUGHT_BACK)
    assert {each.request_id for each in again} == set(restored.all_lost) - set(
        restored.lost["cancelled"] + restored.lost["sold_out"]
    )
    sale_control.resume(restored.card.slug, actor="anna")
    road.settle_line(restored.card)
    assert not Order.objects.filter(request_id__in=restored.waiting).exists()  # it waits for a hold to end
    assert_all_is_right(restored)


def test_run_again_it_changes_nothing(restored: Restored) -> None:
    look("--bring-back")
    rows = list(Order.objects.order_by("id").values_list()), list(StockMovement.objects.order_by("id").values_list())
    assert look("--bring-back")["losses"] == []
    assert rows == (
        list(Order.objects.order_by("id").values_list()),
        list(StockMovement.objects.order_by("id").values_list()),
    )


def test_the_ticket_of_a_buyer_who_came_back_shows_what_they_have(restored: Restored) -> None:
    look("--bring-back")
    for state, name in (("paid", restored.lost["paid"][0]), ("held", restored.lost["held"][0])):
        client = Client()
        client.cookies[buyers.COOKIE_NAME] = buyers.token_of(f"lost-{state:_<9}-0000000")
        page = client.get(reverse("ticket", args=[name]))
        assert page.status_code == 200
        assert f'class="chip {state}"' in page.content.decode()


@pytest.mark.parametrize("point", RESTORE_POINTS)
def test_killed_anywhere_and_run_again_it_ends_right(point: str, restored: Restored) -> None:
    command = [sys.executable, "manage.py", "after_restore", "--bring-back", "--json"]
    environment = {**restored.environment, "FAIRDROP_FAULT": f"{point}:kill"}
    killed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert marker(point) in killed.stderr
    assert killed.returncode == -9
    assert look("--bring-back")["losses"] == []
    assert_all_is_right(restored)


def test_killed_and_left_alone_it_is_not_right(restored: Restored) -> None:
    """The control of the kills: what was struck has not been done."""
    command = [sys.executable, "manage.py", "after_restore", "--bring-back"]
    environment = {**restored.environment, "FAIRDROP_FAULT": "in_bring_back:kill"}
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=600, check=False)
    assert not audit_of(restored.card)["ok"]


def test_an_order_without_its_charge_is_left_to_a_person(restored: Restored) -> None:
    """Redis says paid, but no provider has the money: the units are kept, and nobody calls it paid."""
    name = restored.lost["paid"][0]
    charge = Charge.objects.get(return_url=reverse("ticket", args=[name]))
    charge.events.all().delete()
    charge.delete()
    found = look("--bring-back")
    assert [(loss["kind"], loss["name"]) for loss in found["losses"]] == [("order_older", name)]
    assert states_of([name]) == ["held"]


def test_more_units_than_the_stock_has_are_left_to_a_person(restored: Restored) -> None:
    """Who paid comes first; of the holds one is named, and comes back once the stock is right."""
    sale_control.adjust(restored.card.slug, units=-1, actor="anna", reason="one broke")
    found = look("--bring-back")
    short = [loss["name"] for loss in found["losses"] if loss["kind"] == "units_short"]
    assert short == restored.lost["held"][1:]
    assert states_of(restored.lost["paid"]) == ["paid", "paid"]
    sale_control.adjust(restored.card.slug, units=1, actor="anna", reason="it was found")
    assert look("--bring-back")["losses"] == []
    assert_all_is_right(restored)


def test_a_damaged_record_is_left_to_a_person(restored: Restored) -> None:
    name = restored.lost["held"][0]
    redis.run_commands(redis.connect(), [("HSET", keys.records(restored.card.sku), name, "nonsense")])
    found = look("--bring-back")
    assert [(loss["kind"], loss["name"]) for loss in found["losses"]] == [("record_damaged", name)]


def test_a_redis_older_than_the_loss_leaves_charges_that_are_named(older: Restored) -> None:
    found = look("--bring-back")
    unknown = [loss for loss in found["losses"] if loss["kind"] == "charge_unknown"]
    assert {name for loss in unknown for name in older.lost["paid"] if name in loss["detail"]} == set(
        older.lost["paid"]
    )
    assert kinds(found) == Counter(charge_unknown=2)
    assert states_of(older.kept[:2]) == ["paid", "paid"]
    assert_books_balance(older.card)


def test_an_empty_redis_is_said_to_bear_nothing_out_also_when_asked_again(restored: Restored) -> None:
    forget_all()
    for _ in range(2):
        found = look("--bring-back")
        assert kinds(found) == Counter(redis_empty=1, charge_unknown=2)
    assert states_of(restored.kept[:2]) == ["paid", "paid"]
    priming.prime_sale(restored.card.slug)
    assert_books_balance(restored.card)


def test_without_a_look_the_lost_units_are_sold_a_second_time(restored: Restored) -> None:
    """The control."""
    forget_all()
    priming.prime_sale(restored.card.slug)
    names = paying.hold(restored.card, buyers=WITH_UNITS, named="later")
    assert Order.objects.filter(request_id__in=names, state="held").count() == WITH_UNITS - 1  # one hold ended since


def test_many_orders_come_back_page_by_page(stores: OwnStores, shop_database: None) -> None:
    """RESTORED_ORDERS=100000 is the size to be timed; every second one was paid."""
    with shop_of(stores.environment):
        card = make_sale(f"many-{token_hex(4)}", units=MANY)
        dump = run_program("pg_dump", "--no-owner", stores.environment["DATABASE_URL"])
        names = paying.hold(card, buyers=MANY)
        with restored_database(stores.environment, dump) as environment, shop_of(environment):
            pay_all_at_once(card, names[::2])
            began = time.monotonic()
            assert look("--bring-back")["losses"] == []
            print(f"{MANY} orders came back in {time.monotonic() - began:.1f} s")
            counts = assert_books_balance(card)
            assert (counts["orders_paid"], counts["orders_held"]) == (len(names[::2]), len(names[1::2]))
        forget_all()
        put_away([card.sku])


def pay_all_at_once(card: SaleCard, names: list[str]) -> None:
    """Let the sandbox have collected for these requests, and Redis know that they are paid."""
    made = Charge.objects.bulk_create(
        Charge(
            reference=uuid4().hex,
            amount=card.price,
            currency=card.currency,
            title="Paper kite",
            return_url=reverse("ticket", args=[name]),
            notice_url=paying.NOWHERE,
            state="captured",
        )
        for name in names
    )
    Event.objects.bulk_create(Event(charge=charge, kind="captured") for charge in made)
    client = redis.connect()
    told = reading.figures(client, card.sku)
    assert told is not None
    half = len(names)
    figures = StockFigures(told.available, told.held - half, told.sold + half, told.version + 1)
    places = [
        place for start in range(0, half, 500) for place in reading.places(client, card.sku, names[start : start + 500])
    ]
    changed = [
        writing.Settled(name, place.record._replace(state=State.PAID, hold_expires_ms=None))
        for name, place in zip(names, places, strict=True)
        if place
    ]
    writing.publish_changes(client, card.sku, figures=figures, changed=changed)


def test_the_owner_may_ask_redis_as_web_and_needs_no_cache(restored: Restored, stores: OwnStores) -> None:
    """As docs/restoring.md does it with Compose."""
    make_users(stores)
    forget_refusals(stores)
    web = addresses(stores, "web")["REDIS_URL"]
    nobody = web.replace(f"//{web.partition('//')[2].partition('@')[0]}@", "//nobody:none@")
    with shop_of({**restored.environment, "REDIS_URL": web, "CACHE_URL": nobody}):
        assert look()["losses"]
        look("--bring-back")
        assert_all_is_right(restored)
    assert refused_by_redis(stores) == []
