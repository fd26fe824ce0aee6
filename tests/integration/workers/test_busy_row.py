"""A stock row that somebody keeps holds up the line of its own SKU, and no other. Real stores and a real settler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from inventory import redis
from inventory.line import reading
from inventory.postgres import Connection, LastingConnection
from inventory.redis import keys
from inventory.states import State
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, make_sale
from workers import settler as settlers
from workers.settler import Settler

pytestmark = pytest.mark.usefixtures("shop_database")
ROUNDS = 8


@pytest.fixture
def settler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Settler]:
    """Return a settler that waits for a row as long as in a shop, and leaves it alone for the rest of the test."""
    with road.settler() as worker:
        monkeypatch.setattr(settlers, "BUSY_SECONDS", 3600.0)
        yield worker


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Connection]]:
    """Return of each batch that is settled its SKU, and the connection."""
    seen, settle = list[tuple[str, Connection]](), settlers.settle_batch

    def note(connection: Connection, **named: Any) -> Any:
        seen.append((named["sku"], connection))
        return settle(connection, **named)

    monkeypatch.setattr(settlers, "settle_batch", note)
    return seen


def state(card: SaleCard, name: str) -> State:
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place
    return place.record.state


def test_a_busy_row_keeps_no_other_line_waiting(
    settler: Settler,
    tried: list[tuple[str, Connection]],
    new_sku: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: once the row is free, and has rested, its own line goes on, and nothing was counted against it."""
    busy, other = (make_sale(new_sku(), units=ROUNDS) for _ in range(2))
    (ann,) = road.queue(busy, "ann")
    unanswered = list[str]()
    monkeypatch.setattr(settlers, "note_store_errors", unanswered.append)
    with road.own_connection() as keeper:
        keeper.execute("BEGIN")
        keeper.execute("SELECT 1 FROM inventory_stock WHERE sku = %s FOR UPDATE", [busy.sku])
        for number in range(ROUNDS):
            (name,) = road.queue(other, f"bob-{number}")
            settler.work_once()
            assert state(other, name) is State.HELD
        assert [sku for sku, _ in tried].count(busy.sku) == 1
        assert len({connection for _, connection in tried}) == 1  # a healthy one is not thrown away
        assert state(busy, ann) is State.QUEUED
        keeper.execute("ROLLBACK")
    assert road.run(("EXISTS", keys.hand_outs(busy.sku))) == [0]
    settler._rests_until.clear()
    settler.work_once()
    assert state(busy, ann) is State.HELD
    assert unanswered == []  # the database answered: no alert says that it did not
    for card in (busy, other):
        assert_books_balance(card)


def test_only_a_settler_waits_for_a_row_for_a_second(settler: Settler) -> None:
    """The control: a connection without a bound of its own has the one of the settings."""
    plain = LastingConnection()
    with road.own_connection() as own:
        waits = [each.execute("SHOW lock_timeout").fetchone() for each in (settler._database.get(), plain.get(), own)]
    plain.drop()
    assert waits[0] == ("1s",)
    assert waits[1] == waits[2] != waits[0]
