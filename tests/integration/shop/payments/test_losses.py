"""Proves that a database restored in mid-sale is told what it lost: by pg_dump, with Redis as it was, older and empty.
The control: without a look at what was lost, its units are sold a second time.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from inventory import redis
from inventory.redis import keys
from shop.models import Order
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support import paying
from tests.support.shopkeeping import make_sale, pay, shop_of
from workers.embedded.binaries import postgres_folder

KEPT, LOST = 38, 2  # 5 % of the orders


@dataclass(frozen=True)
class Restored:
    """A sale in a database as it was before its last orders; lost: those; charge: collected since."""

    card: SaleCard
    lost: list[str]
    charge: str


def run_program(name: str, *args: str) -> str:
    program = [str(postgres_folder() / name), *args]
    return subprocess.run(program, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def restored(process_environment: dict[str, str], new_sku: Callable[[], str]) -> Iterator[Restored]:
    """Sell all units, the last ones after the dump; then restore the dump into a database of its own."""
    card = make_sale(new_sku(), units=KEPT + LOST)
    kept = paying.hold(card, buyers=KEPT, named="kept")
    payment = paying.begin(kept[0])
    address = urlsplit(process_environment["DATABASE_URL"])
    name = f"restored_{uuid4().hex[:8]}"
    dump = run_program("pg_dump", "--no-owner", urlunsplit(address))
    lost = paying.hold(card, buyers=LOST, named="lost")
    pay(lost[0])
    own = urlunsplit(address._replace(path=f"/{name}"))
    with connections["default"]._nodb_cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        psql = [str(postgres_folder() / "psql"), "-q", "-v", "ON_ERROR_STOP=1", own]
        subprocess.run(psql, input=dump, check=True, capture_output=True, text=True, timeout=60)
        environment = {**process_environment, "DATABASE_URL": own}
        with shop_of(environment):
            # The sandbox keeps its books in the same database; a real provider's would not have been restored.
            paying.happen(payment, "captured")
            yield Restored(card, lost=lost, charge=payment.reference)
    finally:
        with connections["default"]._nodb_cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def losses_of(card: SaleCard) -> list[dict[str, Any]]:
    out = StringIO()
    with pytest.raises(CommandError, match="somebody has to decide"):
        call_command("after_restore", "--json", stdout=out)
    return [loss for loss in json.loads(out.getvalue())["losses"] if loss["sku"] == card.sku]


def empty(card: SaleCard) -> None:
    client = redis.connect()
    redis.run_commands(client, [("UNLINK", *keys.all_of(card.sku)), ("SREM", keys.skus(), card.sku)])


def sell_again(card: SaleCard) -> int:
    """Start over with an empty Redis, let as many buyers come as units were lost; return how many get one."""
    empty(card)
    catalogue.prime_sale(card.slug)
    names = paying.hold(card, buyers=LOST, named="later")
    return Order.objects.filter(request_id__in=names, state="held").count()


def test_each_lost_order_and_buyer_is_named_by_what_redis_remembers(restored: Restored) -> None:
    found = losses_of(restored.card)
    missing = {loss["name"]: loss for loss in found if loss["kind"] == "order_missing"}
    assert set(missing) == set(restored.lost)
    assert {loss["buyer"] for loss in missing.values()} == {"lost-0000000", "lost-0000001"}
    assert sum(loss["units"] for loss in missing.values()) == LOST
    assert "was paid" in missing[restored.lost[0]]["detail"]
    assert [loss["kind"] for loss in found].count("stock_older") == 1
    assert losses_of(restored.card) == found


def test_a_charge_that_the_provider_collected_since_is_named(restored: Restored) -> None:
    charges = [loss for loss in losses_of(restored.card) if loss["kind"] == "charge_newer"]
    assert [(loss["name"], loss["buyer"]) for loss in charges] == [(restored.charge, "kept-0000000")]


def test_a_redis_older_than_the_loss_still_names_what_it_knows(restored: Restored) -> None:
    redis.run_commands(redis.connect(), [("HDEL", keys.records(restored.card.sku), restored.lost[1])])
    found = losses_of(restored.card)
    assert [loss["name"] for loss in found if loss["kind"] == "order_missing"] == restored.lost[:1]
    assert "stock_older" in {loss["kind"] for loss in found}


def test_an_empty_redis_is_said_to_bear_nothing_out(restored: Restored) -> None:
    empty(restored.card)
    assert {loss["kind"] for loss in losses_of(restored.card)} == {"redis_empty", "charge_newer"}


def test_without_a_look_the_lost_units_are_sold_a_second_time(restored: Restored) -> None:
    """The control."""
    assert sell_again(restored.card) == LOST


def test_lost_units_that_are_taken_out_of_the_stock_are_sold_once(restored: Restored) -> None:
    units = sum(loss["units"] for loss in losses_of(restored.card))
    sale_control.adjust(restored.card.slug, units=-units, actor="anna", reason="sold before the restore")
    assert sell_again(restored.card) == 0
