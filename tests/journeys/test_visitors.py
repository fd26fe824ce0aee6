"""The demo's simulated people at the real shop: they come, some pay, units come back, and they end when told."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable

from shop.catalogue import SaleCard
from shop.models import Order
from tests.http_calls import Caller
from tests.shop_processes import ROOT
from tests.shopkeeping import assert_books_balance
from tests.waiting import wait_until

PEOPLE = 40
SEEN_SECONDS = 90.0


def test_people_come_and_the_line_moves(whole_shop: Caller, open_sale: Callable[..., SaleCard]) -> None:
    card = open_sale(units=8, hold_seconds=4)
    words = ["--host", f"http://127.0.0.1:{whole_shop.port}", "--people", str(PEOPLE), "--prefix", card.slug]

    def states() -> Counter[str]:
        return Counter(Order.objects.filter(sale_id=card.sale_id).values_list("state", flat=True))

    def it_lives() -> bool:
        seen = states()
        return seen["paid"] > 0 and seen["expired"] + seen["cancelled"] > 0 and seen["held"] > 0

    with subprocess.Popen([sys.executable, "-m", "loadtest.visitors", *words], cwd=ROOT) as people:
        try:
            wait_until(it_lives, timeout_seconds=SEEN_SECONDS, what="some paid, and units came back")
        finally:
            people.terminate()
            people.wait(timeout=5)
    assert sum(states().values()) <= PEOPLE
    assert_books_balance(card)


def test_a_shop_elsewhere_is_refused() -> None:
    command = [sys.executable, "-m", "loadtest.visitors", "--host", "http://192.0.2.1:8000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "only a shop on this machine" in done.stderr
