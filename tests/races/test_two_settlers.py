"""Two settlers on one SKU: without fence or known ids the books break, with them every request is decided once.
Begins with its controls.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from inventory import ledger, redis
from inventory.audit import line
from inventory.exceptions import FenceRefused
from inventory.redis import keys
from shop import order_rows
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.races.crowd import line_is_empty, two_settlers
from tests.support.road import own_connection, request, run
from tests.support.shopkeeping import assert_books_balance, audit_of, close_sale, fill_line, make_sale
from tests.support.waiting import wait_until
from workers.settlement import Settlement, settle_batch

pytestmark = pytest.mark.usefixtures("shop_database")
EVERY_FENCE = """
UPDATE inventory_stock SET fence = %(fence)s WHERE sku = %(sku)s RETURNING id, available, held, sold, version
"""


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of ten units."""
    return make_sale(new_sku(), units=10)


def settle_as(card: SaleCard, *buyers: str, fence: int, first_seq: int = 1) -> Settlement:
    """Settle one unit for each of `buyers`, as a holder with `fence` on a connection of its own."""
    asked = [request(card, buyer, seq=first_seq + number) for number, buyer in enumerate(buyers)]
    with own_connection() as connection:
        return settle_batch(connection, sku=card.sku, fence=fence, requests=asked)


def broken(card: SaleCard) -> list[str]:
    """Return the invariants of the books that do not hold; the line knows nothing of these requests."""
    return [each["id"] for each in audit_of(card)["invariants"] if not each["ok"] and each["id"] != "I5b"]


def test_without_the_fence_a_stale_holder_writes(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the claim without its condition lets an old holder in, and the audit names it."""
    monkeypatch.setattr(ledger, "CLAIM", EVERY_FENCE)
    settle_as(card, "ann", fence=10)
    settle_as(card, "bob", fence=9, first_seq=2)
    assert broken(card) == ["I16"]


def test_with_the_fence_a_stale_holder_is_refused(card: SaleCard) -> None:
    settle_as(card, "ann", fence=10)
    with pytest.raises(FenceRefused):
        settle_as(card, "bob", fence=9, first_seq=2)
    assert broken(card) == []
    assert Order.objects.filter(sale_id=card.sale_id).count() == 1


def test_who_ignores_known_requests_is_stopped_by_the_constraint(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: deciding a batch again would sell twice; UNIQUE is the net below."""
    settle_as(card, "ann", "bob", fence=1)
    monkeypatch.setattr(order_rows, "recv_decided", lambda _cursor: {})
    monkeypatch.setattr(order_rows, "recv_live_units", lambda _cursor: {})
    with pytest.raises(psycopg.errors.UniqueViolation):
        settle_as(card, "ann", "bob", fence=2)
    assert broken(card) == []


def test_without_the_constraint_either_a_batch_is_sold_twice(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the control: with both nets gone, the audit is what sees it. All of it is rolled back."""
    settle_as(card, "ann", fence=1)
    monkeypatch.setattr(order_rows, "recv_decided", lambda _cursor: {})
    monkeypatch.setattr(order_rows, "recv_live_units", lambda _cursor: {})
    with own_connection() as connection, connection.transaction(force_rollback=True):
        connection.execute("ALTER TABLE shop_order DROP CONSTRAINT order_once_per_request")
        connection.execute("ALTER TABLE inventory_stockmovement DROP CONSTRAINT movement_once_per_request_and_kind")
        settle_batch(connection, sku=card.sku, fence=2, requests=[request(card, "ann", seq=1)])
        held = connection.execute("SELECT held FROM inventory_stock WHERE sku = %s", [card.sku]).fetchone()
        moved = connection.execute(
            "SELECT count(*) FROM inventory_stockmovement WHERE request_id = %s", [request(card, "ann", seq=1)[0]]
        ).fetchone()
    assert (held, moved) == ((2,), (2,))


def test_the_same_batch_settled_by_two_is_decided_once(card: SaleCard) -> None:
    first = settle_as(card, "ann", "bob", fence=1)
    assert settle_as(card, "ann", "bob", fence=2) == first
    assert broken(card) == []
    assert Order.objects.filter(sale_id=card.sale_id).count() == 2


def test_two_settlers_decide_everything_once_though_their_locks_are_stolen(new_sku: Callable[[], str]) -> None:
    cards = [make_sale(new_sku(), units=60) for _ in range(3)]
    asked = {card.sku: fill_line(card, buyers=150) for card in cards}
    for card in cards:
        close_sale(card)
    stolen, seen = 0, dict.fromkeys(asked, -1)
    with two_settlers(batch=3, lock_ttl_ms=3000):
        while not all(line_is_empty(card) for card in cards):
            for card in cards:
                decided = line.look(redis.connect(), card.sku).decided
                if decided > seen[card.sku]:  # never twice without progress: that would be five hand-outs of one
                    seen[card.sku] = decided
                    stolen += run(("DEL", keys.lock(card.sku)))[0]
                report = audit_of(card)  # the books balance at every moment, not only at the end
                assert report["ok"], report["invariants"]
        wait_until(lambda: all(line_is_empty(card) for card in cards))
    assert stolen > 0
    for card in cards:
        counts = assert_books_balance(card)
        assert (counts["units_held"], counts["orders_sold_out"], counts["orders_refused"]) == (60, 90, 0)
        decided = Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("request_id", flat=True)
        assert list(decided) == asked[card.sku]
