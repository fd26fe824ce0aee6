"""Proves that a reconciler killed while it deletes what was kept long enough, and a command killed while it forgets a
buyer, leave nothing that the next one does not finish, and books that are right.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from secrets import token_hex

import pytest
from django.utils import timezone
from post_office.models import STATUS, Email, Log

from shop.models import Contact, Order, Sale, StaffAct
from shop.orders import mails
from shop.orders.numbers import order_number
from shop.orders.personal_data import FORGOTTEN
from shop.sales.catalogue import SaleCard
from shop.staff import retiring
from tests.support import road
from tests.support.crashes.worker_shop import WorkerShop, own_stores, worker_shop
from tests.support.servers.shop_processes import ROOT, run_manage
from tests.support.shopkeeping import assert_books_balance, close_sale, fill_line, make_sale, pay_all
from tests.support.waiting import wait_until
from workers.reconciler.retention import MAX_DELETED

pytestmark = pytest.mark.usefixtures("quiet_notices")

# More than one step of a kind.
BUYERS, UNITS = MAX_DELETED + 200, 5


@pytest.fixture
def shop(django_db_setup: None, shop_database: None, tmp_path: Path) -> Iterator[WorkerShop]:
    """Run both stores for one test: a reconciler looks at every sale there is."""
    with own_stores(os.environ, folder=tmp_path) as stores, worker_shop(stores, folder=tmp_path) as own:
        yield own


@pytest.fixture
def card(shop: WorkerShop) -> SaleCard:
    """Return a retired sale with many orders that ended long ago, with mails and acts as old."""
    card = make_sale(f"past-{token_hex(4)}", units=UNITS, line_capacity=BUYERS)
    fill_line(card, buyers=BUYERS)
    road.settle_line(card)
    pay_all(card)
    close_sale(card)
    road.settle_line(card)
    retiring.retire(card.slug, actor="anna")
    ended = timezone.now() - timedelta(days=5000)
    Sale.objects.filter(pk=card.sale_id).update(opens_at=ended - timedelta(hours=1), closes_at=ended)
    kept = [Email(to=["ada@shop.example"], from_email="s@shop.example", status=STATUS.sent) for _ in range(BUYERS)]
    Log.objects.bulk_create(Log(email=each, status=STATUS.sent) for each in Email.objects.bulk_create(kept))
    Email.objects.update(created=ended)
    StaffAct.objects.bulk_create(StaffAct(act="login", actor="anna", at=ended) for _ in range(BUYERS))
    return card


def left(card: SaleCard) -> dict[str, int]:
    named = Order.objects.filter(sale_id=card.sale_id).exclude(buyer__startswith=FORGOTTEN)
    old = StaffAct.objects.filter(at__lt=timezone.now() - timedelta(days=1000))
    return {"buyers": named.count(), "mails": Email.objects.count(), "acts": old.count()}


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_what_a_killed_reconciler_left_goes_with_the_next_one(nth: int, shop: WorkerShop, card: SaleCard) -> None:
    """The control: right after the death something of it is left."""
    victim = shop.start("reconciler", name="victim", fault=f"in_retention:kill:{nth}")
    shop.wait_until_struck(victim, "in_retention")
    assert victim.wait(timeout_seconds=120)
    assert victim.exit_code == -signal.SIGKILL
    assert sum(left(card).values()) > 0
    shop.start("reconciler", name="healthy")
    wait_until(lambda: not any(left(card).values()), what=lambda: f"{left(card)} is left: that it")
    wait_until(lambda: Sale.objects.get(pk=card.sale_id).buyers_forgotten_at, what="the sale is noted")
    orders = Order.objects.filter(sale_id=card.sale_id)
    assert (orders.count(), orders.filter(state="paid").count()) == (BUYERS, UNITS)
    assert orders.values("buyer").distinct().count() == BUYERS
    assert StaffAct.objects.filter(sale_id=card.sale_id, act="retire").exists()
    assert_books_balance(card)


def test_a_buyer_forgotten_by_half_is_not_forgotten_and_then_whole(shop: WorkerShop, card: SaleCard) -> None:
    order = Order.objects.filter(sale_id=card.sale_id, state="paid").latest("pk")
    Contact.objects.create(request_id=order.request_id, address="ada@shop.example", language="en", root="http://x")
    command = ("forget_buyer", order_number(order.pk), "--reason", "asked for it", "--actor", "anna", "--yes")
    died = subprocess.run(
        [sys.executable, "manage.py", *command], cwd=ROOT, check=False, capture_output=True, timeout=600,
        env={**shop.environment, "FAIRDROP_FAULT": "in_forget_buyer:kill"},
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL
    assert mails.find_address(order.request_id) == "ada@shop.example"  # all of it, or nothing
    assert not StaffAct.objects.filter(act="forget_buyer").exists()
    run_manage(*command, environment=shop.environment)
    assert not Contact.objects.exclude(address="", language="", root="").exists()
    assert not Order.objects.filter(buyer=order.buyer).exists()
    assert StaffAct.objects.filter(act="forget_buyer").count() == 1
    assert_books_balance(card)
