"""Two web processes with one line: what one remembers never takes back what the other has promised.
Both run in this process, on one loop; the second looks at the line only when it is told to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connections

from inventory import redis
from inventory.line import admission, reading
from shop.buyers import issue_buyer
from shop.gate.purchase import Purchases
from shop.gate.sales import state
from shop.gate.sales.cache import Board
from shop.gate.server.rates import Rates
from shop.orders import holds
from shop.orders.restoring import restore
from shop.replies import AwaitedReply, LateAnswers
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, make_sale, pay
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
LONG = 3600.0


class Gate:
    """The door of one web process, and what it knows of one sale."""

    def __init__(self, card: SaleCard, loop: asyncio.Runner) -> None:
        self._card, self._loop = card, loop
        loop.run(self._open())

    async def _open(self) -> None:
        self._client = redis.connect_async()
        self._board = Board(self._client, load_cards=lambda: [self._card])
        self._purchases = Purchases(self._client, self._board, LateAnswers(), rates=Rates(0, 0))
        await self._board.find(self._card.slug)

    async def _close(self) -> None:
        await self._purchases.stop()
        await self._board.stop()
        await self._client.aclose()

    def close(self) -> None:
        self._loop.run(self._close())

    def look(self) -> None:
        """Look at the line, as the process does by itself at every hint."""
        self._loop.run(self._board._refresh_figures())

    def ask(self, token: str) -> tuple[int, dict[str, object]]:
        """Press once; return status and body of the answer."""
        return self._loop.run(self._ask(token))

    async def _ask(self, token: str) -> tuple[int, dict[str, object]]:
        reply, entry = AwaitedReply(), await self._board.find(self._card.slug)
        headers = {b"authorization": f"Bearer {token}".encode(), b"content-type": b"application/json"}
        self._purchases.handle(reply, (entry, ("", "")), headers, b'{"quantity":1}')
        head, body = await reply.answer()
        return head.status, json.loads(body)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Runner]:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)  # the boards' threads leave none open
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.parametrize("is_paid", [False, True], ids=["the line was full", "all was sold"])
@pytest.mark.parametrize(
    ("reopening_us", "fresh_seconds", "second"),
    [(admission.REOPENING_US, state.FRESH_SECONDS, 200), (0, LONG, 409)],
    ids=["as it is", "the control: at once, and what is remembered counts"],
)
def test_who_was_let_in_by_one_process_is_not_told_sold_out_by_the_other(
    new_sku: Callable[[], str],
    loop: asyncio.Runner,
    monkeypatch: pytest.MonkeyPatch,
    is_paid: bool,
    reopening_us: int,
    fresh_seconds: float,
    second: int,
) -> None:
    """A remembers nothing and lets X in for the unit that came free; X's second press reaches B, which saw it full."""
    monkeypatch.setattr(admission, "REOPENING_US", reopening_us)
    monkeypatch.setattr(state, "FRESH_SECONDS", fresh_seconds)
    card = make_sale(new_sku(), units=1, line_capacity=0)
    (name,) = road.queue(card, "holder")
    if is_paid:
        road.settle_line(card)
        pay(name)
    a, b = Gate(card, loop), Gate(card, loop)
    for stranger in range(2):
        b.look()
        assert b.ask(issue_buyer()[1])[0] == 409, stranger
    if is_paid:
        sale_control.restock(card.slug, units=1, actor="test", reason="")
    else:
        holds.cancel(name, buyer="holder")
    _, token = issue_buyer()

    def let_in() -> dict[str, object] | None:
        status, body = a.ask(token)
        return body if status == 202 else None

    first = wait_until(let_in, what="A lets X in")
    status, body = b.ask(token)
    assert status == second, body
    if second == 200:
        assert (body["request_id"], body["seq"]) == (first["request_id"], first["seq"])
        for gate in (b, a):
            gate.look()
            assert gate.ask(token)[0] == 200
    a.close()
    b.close()
    road.settle_line(card)
    assert_books_balance(card)


@pytest.mark.parametrize(
    ("counts_records", "told"),
    [(True, (200, "queued")), (False, (409, "line_full"))],
    ids=["as it is", "the control: the number of records is not looked at"],
)
def test_who_came_back_by_ticket_is_not_told_that_the_line_is_full(
    new_sku: Callable[[], str],
    loop: asyncio.Runner,
    monkeypatch: pytest.MonkeyPatch,
    counts_records: bool,
    told: tuple[int, str],
) -> None:
    """After a loss newcomers fill the line, and B knows them. Then three come back, which is no new admission."""
    look_at_all = reading.figures_async

    async def look(*asked: object) -> list[object]:
        return [each and (each if counts_records else each._replace(records=0)) for each in await look_at_all(*asked)]

    monkeypatch.setattr(reading, "figures_async", look)
    monkeypatch.setattr(state, "FRESH_SECONDS", LONG)
    card = make_sale(new_sku(), units=2, line_capacity=2)
    a, b = Gate(card, loop), Gate(card, loop)
    buyers = [issue_buyer() for _ in range(3)]
    tickets = [str(a.ask(token)[1]["ticket"]) for _, token in buyers]
    road.forget(card)
    priming.prime_sale(card.slug)
    assert [a.ask(issue_buyer()[1])[0] for _ in range(4)] == [202] * 4
    b.look()
    assert b.ask(issue_buyer()[1])[1]["code"] == "line_full"
    assert [restore(ticket, buyer=name)[1] for ticket, (name, _) in zip(tickets, buyers, strict=True)] == [True] * 3
    b.look()
    for _, token in buyers:
        status, body = b.ask(token)
        assert (status, body.get("state", body.get("code"))) == told
    assert b.ask(issue_buyer()[1])[1]["code"] == "line_full"  # to strangers it is, still
    a.close()
    b.close()
    road.settle_line(card)
    assert_books_balance(card)


def test_who_was_let_in_is_told_their_place_after_the_opening_was_moved_away(
    new_sku: Callable[[], str], loop: asyncio.Runner
) -> None:
    card = make_sale(new_sku(), units=2)
    gate = Gate(card, loop)
    (_, token), (_, stranger) = issue_buyer(), issue_buyer()
    name = gate.ask(token)[1]["request_id"]
    road.settle_line(card)
    gate.look()
    later = replace(card, opens_at=card.opens_at + timedelta(days=1))
    road.rewrite_sale(card, opens_us=round(later.opens_at.timestamp() * 1e6))
    (entry,) = gate._board.entries()
    entry.use(later)
    status, body = gate.ask(token)
    assert (status, body["request_id"], body["state"]) == (200, name, "held")
    early = gate.ask(stranger)
    assert (early[0], early[1]["code"]) == (425, "sale_not_open")
    # The control: while a process knows of nobody who was let in, it answers by itself.
    entry.see(None, moment=0.0)
    alone = gate.ask(token)
    assert (alone[0], alone[1]["opens_at"]) == (425, early[1]["opens_at"])
    gate.close()


def test_a_gate_that_starts_after_the_opening_was_moved_away_knows_who_was_let_in(
    new_sku: Callable[[], str], loop: asyncio.Runner
) -> None:
    card = make_sale(new_sku(), units=2)
    first = Gate(card, loop)
    _, token = issue_buyer()
    name = first.ask(token)[1]["request_id"]
    road.settle_line(card)
    first.close()
    later = replace(card, opens_at=card.opens_at + timedelta(days=1))
    road.rewrite_sale(card, opens_us=round(later.opens_at.timestamp() * 1e6))
    gate = Gate(later, loop)
    (entry,) = gate._board.entries()
    assert gate._board._choose() == [entry]
    gate.look()
    assert gate._board._choose() == [entry]
    status, body = gate.ask(token)
    assert (status, body["request_id"], body["state"]) == (200, name, "held")
    gate.close()


def test_a_far_sale_without_requests_is_looked_at_once(new_sku: Callable[[], str], loop: asyncio.Runner) -> None:
    """The control: after that only when it was primed, which a look at an emptied Redis leads to."""
    gate = Gate(make_sale(new_sku(), units=2, opens_in_seconds=86_400, closes_in_seconds=90_000), loop)
    board, (entry,) = gate._board, gate._board.entries()
    gate.look()
    assert (board._choose(), entry.is_due) == ([], False)
    loop.run(board._prime(entry))
    assert board._choose() == [entry]
    gate.close()
