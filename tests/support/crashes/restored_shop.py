"""Gives a test a shop whose database was lost in mid-sale and restored from a backup; Redis and the provider were not.
The sandbox keeps its books in the same database: they are carried over, as another company's would be untouched.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.core.management import CommandError, call_command
from django.db import connections
from django.urls import reverse

from shop.models import Order, Payment
from shop.orders import holds
from shop.payments import notices
from shop.payments.refunds import refund_order
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge, Event
from shop.sandbox.provider import Sandbox
from tests.support import paying, road
from tests.support.crashes.worker_shop import OwnStores, drifts
from tests.support.shopkeeping import assert_books_balance, fill_line, let_holds_end, make_sale, shop_of
from workers.embedded.binaries import postgres_folder

KEPT = 100
# Those that were decided after the backup, as Redis has them.
LOST = {"paid": 2, "held": 2, "expired": 1, "cancelled": 1, "refunded": 1, "sold_out": 1}
WITH_UNITS = 4
UNITS = KEPT - 1 + WITH_UNITS  # one of the kept holds ends after the backup
TOO_MANY = KEPT // 2 + 40


@dataclass(frozen=True)
class Restored:
    """A sale in a database as it was before its last orders.

    lost: request ids by their last state; late: the payment begun before the backup and collected after it, for the
    first of kept; the second paid with one begun after it, the third's hold ended; waiting: undecided.
    """

    card: SaleCard
    kept: list[str]
    lost: dict[str, list[str]]
    late: Payment
    waiting: list[str]
    environment: dict[str, str]

    @property
    def all_lost(self) -> list[str]:
        """Every request whose order is missing."""
        return [name for names in self.lost.values() for name in names]


def run_program(name: str, *args: str, text: str = "") -> str:
    """Run one of PostgreSQL's programs; return what it wrote."""
    program = [str(postgres_folder() / name), *args]
    return subprocess.run(program, input=text, check=True, capture_output=True, text=True, timeout=600).stdout


def begin(name: str) -> Payment:
    """Begin to pay a hold; the sandbox knows where the buyer is to go afterwards, as after a real press."""
    payment = notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")
    Sandbox().begin(replace(paying.charge_of(payment), return_url=reverse("ticket", args=[name])))
    return payment


def pay(name: str) -> None:
    """Pay for a hold at the sandbox, and let the shop hear of it."""
    assert paying.hear(paying.happen(begin(name), "captured")) == "paid"


def sell_after_backup(card: SaleCard, kept: list[str]) -> dict[str, list[str]]:
    """Sell on as if nothing were to come; return the new requests by their last state."""
    pay(kept[1])
    end_hold(kept[2])
    found: dict[str, list[str]] = {}
    for state in ("expired", "cancelled", "refunded", "paid", "held"):
        found[state] = paying.hold(card, buyers=LOST[state], named=f"lost-{state:_<9}")
        if state == "expired":
            end_hold(*found[state])
        elif state == "cancelled":
            holds.cancel(found[state][0], buyer="lost-cancelled-0000000")
        elif state in ("refunded", "paid"):
            for name in found[state]:
                pay(name)
    refund_order(found["refunded"][0], actor="anna", reason="asked for")
    found["sold_out"] = fill_line(card, buyers=1, quantity=TOO_MANY, named="lost-sold-out")
    road.settle_line(card)
    return found


def end_hold(*names: str) -> None:
    """Let the time of holds be over, and the expirer end them."""
    let_holds_end(*names)
    sku = Order.objects.values_list("sale__stock__sku", flat=True).get(request_id=names[0])
    with connections["default"].cursor() as cursor:
        changes = holds.expire_due(cursor, sku=sku, request_ids=names)
    holds.publish(changes)


def sell_before_backup() -> Restored:
    """Sell as a backup will have it; nothing is lost yet."""
    card = make_sale(f"restored-{token_hex(4)}", units=UNITS, limit=TOO_MANY)
    kept = paying.hold(card, buyers=KEPT - 40, named="kept")
    for name in kept[40:]:
        pay(name)
    kept += paying.hold(card, buyers=40, named="kept-late")
    for name in kept[-30:]:
        pay(name)
    return Restored(card, kept, {}, begin(kept[0]), [], {})


def sell_until_lost(sold: Restored, environment: dict[str, str]) -> Restored:
    """Sell on after a backup until the database is lost; environment: of the shop that it will be restored for."""
    lost = sell_after_backup(sold.card, sold.kept)
    waiting = fill_line(sold.card, buyers=1, named="waiting")
    paying.happen(sold.late, "captured")
    return replace(sold, lost=lost, waiting=waiting, environment=environment)


class SandboxBooks:
    """The sandbox's books as they are now, to be carried over into a restored database."""

    def __init__(self) -> None:
        self._charges = list(Charge.objects.all())
        events = Event.objects.select_related("charge").order_by("id")
        self._events = [(each.charge.reference, each) for each in events]

    def carry_over(self) -> None:
        """Put them into the present database, once."""
        Event.objects.all().delete()
        Charge.objects.all().delete()
        for charge in self._charges:
            charge.pk = None
        by_reference = {each.reference: each for each in Charge.objects.bulk_create(self._charges)}
        for reference, event in self._events:
            event.pk, event.charge = None, by_reference[reference]
            event.save(force_insert=True)


@contextmanager
def restored_shop(stores: OwnStores, *, folder: Path, redis_is_older: bool = False) -> Iterator[Restored]:
    """Sell, back up, sell on, lose the database, restore the backup into one of its own; work on that.

    folder: of the Valkey, whose files are those of before the last orders when redis_is_older.
    """
    sold = sell_before_backup()
    dump = run_program("pg_dump", "--no-owner", stores.environment["DATABASE_URL"])
    if redis_is_older:
        shutil.copytree(folder / "valkey", folder / "copied")
    sold = sell_until_lost(sold, {})
    books = SandboxBooks()
    if redis_is_older:
        go_back(stores, folder=folder)
    with restored_database(stores.environment, dump) as environment, shop_of(environment):
        books.carry_over()
        yield replace(sold, environment=environment)


def go_back(stores: OwnStores, *, folder: Path) -> None:
    """Let the Valkey start again with its files of before."""
    stores.valkey.kill()
    shutil.rmtree(folder / "valkey")
    shutil.move(folder / "copied", folder / "valkey")
    stores.valkey.start_again()


@contextmanager
def restored_database(environment: dict[str, str], dump: str) -> Iterator[dict[str, str]]:
    """Restore a dump into a database of its own; give the environment that names it."""
    address = urlsplit(environment["DATABASE_URL"])
    name = f"restored_{token_hex(4)}"
    own = urlunsplit(address._replace(path=f"/{name}"))
    run_program("psql", "-q", environment["DATABASE_URL"], text=f"CREATE DATABASE {name}")
    try:
        run_program("psql", "-q", "-v", "ON_ERROR_STOP=1", own, text=dump)
        yield {**environment, "DATABASE_URL": own}
    finally:
        connections["default"].close()
        run_program("psql", "-q", environment["DATABASE_URL"], text=f"DROP DATABASE {name} WITH (FORCE)")


def look(*args: str) -> dict[str, Any]:
    """Run after_restore; return what it says, and whether its exit code asks for a person."""
    out = StringIO()
    with suppress(CommandError):
        call_command("after_restore", "--json", *args, stdout=out)
        assert json.loads(out.getvalue())["ok"]
    found: dict[str, Any] = json.loads(out.getvalue())
    assert found["ok"] is not bool(found["losses"])
    return found


def states_of(names: list[str]) -> list[str]:
    """Return the states of the orders of some requests."""
    orders = Order.objects.in_bulk(names, field_name="request_id")
    return [orders[name].state for name in names]


def assert_all_is_right(restored: Restored) -> None:
    """Every buyer has what they had, once, and paid once; nothing was sold twice, nothing is left over."""
    for state, names in restored.lost.items():
        assert states_of(names) == [state] * LOST[state]
    assert states_of(restored.kept[:3]) == ["paid", "paid", "expired"]
    captured = Payment.objects.filter(order__sale_id=restored.card.sale_id, state="captured")
    paid = Order.objects.filter(sale_id=restored.card.sale_id, state="paid")
    assert sorted(captured.values_list("order_id", flat=True)) == sorted(paid.values_list("id", flat=True))
    collected = Charge.objects.filter(state="captured").values_list("reference", flat=True)
    assert sorted(collected) == sorted(captured.values_list("reference", flat=True))
    counts = assert_books_balance(restored.card)
    assert (counts["held"] or 0) + (counts["sold"] or 0) == UNITS
    assert drifts(restored.card.slug) == []
