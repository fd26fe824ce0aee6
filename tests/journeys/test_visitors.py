"""The demo's simulated people at the real shop: they come, some pay, units come back, and they end when told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import ROOT
from tests.support.shopkeeping import assert_books_balance
from tests.support.waiting import wait_until

# With this seed 17 would pay, 13 would give their unit back, and 7 would leave the line: anyone who comes first, among
# the holders of 28 units is one who pays and one who gives back, and among those who wait is one who stays.
SEED, PEOPLE, UNITS = 34, 40, 28
# Nobody decides by their speed: they act within seconds, and a hold lasts longer than this test.
HOLD_SECONDS = 3600
SEEN_SECONDS = 300.0


@pytest.mark.timeout(2 * SEEN_SECONDS)
def test_people_come_and_the_line_moves(whole_shop: Caller, open_sale: Callable[..., SaleCard]) -> None:
    card = open_sale(units=UNITS, hold_seconds=HOLD_SECONDS)
    words = ["--host", f"http://127.0.0.1:{whole_shop.port}", "--people", str(PEOPLE), "--prefix", card.slug]
    orders = Order.objects.filter(sale_id=card.sale_id)

    def it_lives() -> bool:
        """Somebody paid, and somebody was given a unit that another gave back."""
        had_a_unit = orders.filter(hold_expires_at__isnull=False)
        return orders.filter(state="paid").exists() and had_a_unit.count() > UNITS

    command = [sys.executable, "-m", "loadtest.visitors", *words, "--seed", str(SEED)]
    with subprocess.Popen(command, cwd=ROOT) as people:
        try:
            wait_until(it_lives, timeout_seconds=SEEN_SECONDS, what="some paid, and units came back")
        finally:
            people.terminate()
            try:
                people.wait(timeout=120)
            finally:
                people.kill()  # the block would wait for its end
    assert orders.count() <= PEOPLE
    assert_books_balance(card)


def test_a_shop_elsewhere_is_refused() -> None:
    command = [sys.executable, "-m", "loadtest.visitors", "--host", "http://192.0.2.1:8000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "only a shop on this machine" in done.stderr
