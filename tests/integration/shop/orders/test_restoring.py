"""A ticket brings a place back that Redis has lost, at its old seq, once, for its owner, and never one that is decided.
Redis forgets one SKU; the sale is primed again from the database.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import InvalidRequest, RequestNotFound
from inventory.line import reading
from inventory.line.admission import Code
from inventory.records import Record, Ticket, sign_ticket
from inventory.redis import keys
from inventory.states import State
from shop.buyers import ticket_signer
from shop.models import Order
from shop.orders import holds
from shop.orders.restoring import restore
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from shop.tickets.signing import sign_tickets
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, make_sale, pay_all
from tests.support.waiting import wait_until
from workers.management.commands.reconcile import run

pytestmark = pytest.mark.usefixtures("shop_database")
BUYERS = tuple(f"buyer-{number}" for number in range(8))


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of two units, with room for a few more."""
    return make_sale(new_sku(), units=2, line_capacity=len(BUYERS) - 2)


def let_in(card: SaleCard, *buyers: str, signed: bool = False) -> dict[str, str]:
    """Let each buyer ask for one unit; return their tickets, of before or signed for anybody."""
    asks = [road.ask(card, buyer) for buyer in buyers]
    answers = road.admit(card, *asks)
    tickets = [
        Ticket(ask.request_id, ask.buyer, ask.quantity, answer.seq, answer.terms_version, answer.ordinal)
        for ask, answer in zip(asks, answers, strict=True)
    ]
    if signed:
        return dict(zip(buyers, sign_tickets(tickets, slug=card.slug, request_key=card.request_id_key()), strict=True))
    return {ticket.buyer: sign_ticket(ticket_signer(), ticket._replace(ordinal=0)) for ticket in tickets}


def lose(card: SaleCard) -> None:
    """Empty Redis of the SKU, and prime the sale as the gate does."""
    road.forget(card)
    priming.prime_sale(card.slug)


def records_in_line(card: SaleCard) -> list[Record]:
    """Return the records of those who wait, in the order of the line."""
    names = road.run(("ZRANGE", keys.line(card.sku), 0, -1))[0]
    places = reading.places(redis.connect(), card.sku, names) if names else []
    return [place.record for place in places if place]


def in_line(card: SaleCard) -> list[str]:
    """Return the buyers who wait, in the order of the line."""
    return [record.buyer for record in records_in_line(card)]


def restore_all(tickets: dict[str, str], *, shuffled: bool = True) -> list[bool]:
    """Restore every ticket in any order; return what each was told."""
    buyers = list(tickets)
    if shuffled:
        random.shuffle(buyers)
    return [restore(tickets[buyer], buyer=buyer)[1] for buyer in buyers]


def test_without_their_tickets_the_places_are_lost(card: SaleCard) -> None:
    """The control: what priming knows is what was decided, and nobody was."""
    let_in(card, *BUYERS)
    lose(card)
    assert in_line(card) == []
    road.settle_line(card)
    assert Order.objects.filter(sale_id=card.sale_id).count() == 0


@pytest.mark.parametrize("signed", [True, False], ids=["signed for anybody", "of before"])
def test_tickets_bring_the_places_back_in_their_old_order(card: SaleCard, signed: bool) -> None:
    tickets = let_in(card, *BUYERS, signed=signed)
    before = road.run(("ZRANGE", keys.line(card.sku), 0, -1, "WITHSCORES"))
    lose(card)
    assert restore_all(tickets) == [True] * len(BUYERS)
    assert road.run(("ZRANGE", keys.line(card.sku), 0, -1, "WITHSCORES")) == before
    assert in_line(card) == list(BUYERS)
    road.settle_line(card)
    held = Order.objects.filter(sale_id=card.sale_id, state="held").order_by("seq")
    assert [order.buyer for order in held] == list(BUYERS[:2])
    assert all(order.restored for order in held)
    assert_books_balance(card)


def test_who_comes_new_stands_behind_every_place_that_came_back(card: SaleCard) -> None:
    """Whether they come before the tickets, between them, or after: their seq is higher (I18)."""
    tickets = let_in(card, *BUYERS[:4])
    lose(card)
    let_in(card, "new-1")
    for buyer in reversed(BUYERS[:4]):
        restore(tickets[buyer], buyer=buyer)
    let_in(card, "new-2")
    assert in_line(card) == [*BUYERS[:4], "new-1", "new-2"]


def test_a_ticket_of_the_future_still_keeps_new_ones_behind_it(card: SaleCard) -> None:
    """The clock of the lost server was ahead: the next seq is above the restored one all the same."""
    ask = road.ask(card, "ann")
    ahead = Ticket(ask.request_id, "ann", 1, 4 * 10**15)
    restore(sign_ticket(ticket_signer(), ahead), buyer="ann")
    (answer,) = road.admit(card, road.ask(card, "bob"))
    assert answer.seq == 4 * 10**15 + 1


def test_the_same_ticket_again_changes_nothing(card: SaleCard) -> None:
    tickets = let_in(card, *BUYERS[:3])
    lose(card)
    first, lost = restore(tickets["buyer-1"], buyer="buyer-1")
    before = road.snapshot(card)
    again, lost_again = restore(tickets["buyer-1"], buyer="buyer-1")
    assert (lost, lost_again, again) == (True, False, first)
    assert road.snapshot(card) == before


@pytest.mark.parametrize(("lost", "again"), [(1, 2), (2, 1), (2, 2)])
def test_a_ticket_for_other_units_than_were_asked_anew_counts_its_own(
    new_sku: Callable[[], str], lost: int, again: int
) -> None:
    """Asked again after the loss with the same key: the ticket brings its place back, and its units."""
    card = make_sale(new_sku(), units=3, limit=3, line_capacity=0)
    ask = road.ask(card, "ann", quantity=lost)
    (answer,) = road.admit(card, ask)
    ticket = sign_ticket(ticket_signer(), Ticket(ask.request_id, "ann", lost, answer.seq))
    lose(card)
    assert road.admit(card, road.ask(card, "ann", quantity=again))[0].code == Code.ADMITTED
    view, restored = restore(ticket, buyer="ann")
    assert (restored, view.quantity, view.seq) == (True, lost, answer.seq)
    before = road.snapshot(card)
    restore(ticket, buyer="ann")
    assert road.snapshot(card) == before
    assert run(sale=card.slug, repair=False)["drifts"] == []
    # What the ticket leaves of her limit and of the line's capacity is there to be had, and not a unit more.
    more = [road.ask(card, "ann", quantity=units, key="more") for units in (4 - lost, 3 - lost)]
    assert [road.admit(card, each)[0].code for each in more] == [Code.LIMIT_REACHED, Code.ADMITTED]
    assert road.admit(card, road.ask(card, "bob"))[0].code == Code.LINE_FULL
    road.settle_line(card)
    assert assert_books_balance(card)["units_held"] == 3


def test_a_ticket_of_a_place_that_was_never_lost_changes_nothing(card: SaleCard) -> None:
    tickets = let_in(card, *BUYERS[:3])
    before = road.snapshot(card)
    view, lost = restore(tickets["buyer-2"], buyer="buyer-2")
    assert (lost, view.state, view.position) == (False, State.QUEUED, 3)
    assert road.snapshot(card) == before


def test_what_was_decided_is_never_queued_again(card: SaleCard) -> None:
    tickets = let_in(card, *BUYERS[:3])
    road.settle_line(card)
    holds.cancel(road.ask(card, "buyer-1").request_id, buyer="buyer-1")
    road.forget(card)
    priming.prime_sale(card.slug)
    before = road.snapshot(card)
    told = {buyer: restore(tickets[buyer], buyer=buyer) for buyer in BUYERS[:2]}
    assert {buyer: (view.state, lost) for buyer, (view, lost) in told.items()} == {
        "buyer-0": (State.HELD, False),
        "buyer-1": (State.CANCELLED, False),
    }
    assert road.snapshot(card) == before


def test_one_that_is_decided_while_it_is_restored_is_answered_as_it_was_decided(card: SaleCard) -> None:
    """The order came after the look into the database: the settler finds it by its id, and nothing is taken twice."""
    tickets = let_in(card, "ann")
    lock = road.held_lock(card.sku)
    handed = road.take(lock)
    lose(card)
    restore(tickets["ann"], buyer="ann")
    with road.own_connection() as own:
        road.settle_batch(own, sku=card.sku, fence=lock.fence, requests=handed.requests)
    road.settle_line(card)
    (place,) = reading.places(redis.connect(), card.sku, [road.ask(card, "ann").request_id])
    assert place is not None
    assert place.record.state is State.HELD
    assert assert_books_balance(card)["units_held"] == 1


def test_a_signed_ticket_brings_nothing_back_for_another_buyer_or_shop(card: SaleCard) -> None:
    tickets = let_in(card, *BUYERS[:2], signed=True)
    lose(card)
    before = road.snapshot(card)
    with pytest.raises(RequestNotFound):
        restore(tickets["buyer-0"], buyer="buyer-1")
    seed = "A" * 43
    with (
        override_settings(LOG_KEYS=[f"2026-01-01T00:00:00Z={seed}"]),
        pytest.raises(InvalidRequest, match="a key that this shop does not have"),
    ):
        restore(tickets["buyer-0"], buyer="buyer-0")
    assert road.snapshot(card) == before
    assert restore(tickets["buyer-0"], buyer="buyer-0")[1]  # the control


def test_a_signed_ticket_is_good_without_logs_too(card: SaleCard) -> None:
    tickets = let_in(card, "ann", signed=True)
    lose(card)
    with override_settings(SALE_LOG=False):
        assert restore(tickets["ann"], buyer="ann")[1]


def test_no_ticket_but_the_buyers_own_brings_anything_back(card: SaleCard) -> None:
    tickets = let_in(card, *BUYERS[:2])
    lose(card)
    before = road.snapshot(card)
    own = tickets["buyer-0"]
    better = own.replace(own.split(".")[3], "1")
    for text in (
        better,
        own[:-1],
        own + "A",
        "",
        "a.b.c.d.e",
        sign_ticket(ticket_signer(), Ticket("no-id", "x", 1, 1)),
    ):
        with pytest.raises((InvalidRequest, RequestNotFound)):
            restore(text, buyer="buyer-0")
    with pytest.raises(RequestNotFound):
        restore(own, buyer="buyer-1")
    assert road.snapshot(card) == before


def test_who_was_let_in_before_is_not_bound_by_the_line_capacity(card: SaleCard) -> None:
    tickets = let_in(card, *BUYERS)
    lose(card)
    let_in(card, *(f"new-{number}" for number in range(len(BUYERS))))  # the line is full now
    assert restore_all(tickets) == [True] * len(BUYERS)
    road.settle_line(card)
    held = Order.objects.filter(sale_id=card.sale_id, state="held")
    assert {order.buyer for order in held} == set(BUYERS[:2])
    assert_books_balance(card)


@pytest.mark.parametrize("ending", ["by its operator", "by its time"])
def test_a_ticket_that_comes_after_the_end_is_decided(card: SaleCard, ending: str, new_sku: Callable[[], str]) -> None:
    """The units that are free are still for the first in line; the rest is told that there is none."""
    tickets = let_in(card, *BUYERS[:4])
    if ending == "by its operator":
        sale_control.close(card.slug, actor="test", reason="the end")
    else:
        with road.own_connection() as own:
            own.execute("UPDATE shop_sale SET closes_at = clock_timestamp() WHERE id = %s", [card.sale_id])
    lose(card)
    assert restore_all(tickets) == [True] * 4
    road.settle_line(card)
    states = Order.objects.filter(sale_id=card.sale_id).order_by("seq").values_list("state", flat=True)
    assert list(states) == ["held", "held", "sold_out", "sold_out"]
    assert_books_balance(card)


def test_after_the_last_unit_was_paid_a_late_ticket_is_told_sold_out(card: SaleCard) -> None:
    tickets = let_in(card, *BUYERS[:3])
    first = {buyer: tickets[buyer] for buyer in BUYERS[:2]}
    lose(card)
    restore_all(first)
    road.settle_line(card)
    pay_all(card)
    restore(tickets["buyer-2"], buyer="buyer-2")
    road.settle_line(card)
    view, lost = restore(tickets["buyer-2"], buyer="buyer-2")
    assert (view.state, lost) == (State.SOLD_OUT, False)
    assert_books_balance(card)


def test_who_was_told_waitlisted_is_told_so_again(card: SaleCard) -> None:
    """Nothing is free after the loss either: they wait for a unit that may come back, and are told nothing else."""
    tickets = let_in(card, *BUYERS[:5])
    road.settle_line(card)
    lose(card)
    for buyer in ("buyer-4", "buyer-2", "buyer-3"):
        view, _ = restore(tickets[buyer], buyer=buyer)
        assert view.state is State.WAITLISTED
    assert {record.state for record in records_in_line(card)} == {State.WAITLISTED}
    road.settle_line(card)
    assert {record.state for record in records_in_line(card)} == {State.WAITLISTED}
    restore(tickets["buyer-2"], buyer="buyer-2")


def test_who_waits_for_more_than_is_free_is_told_so_again(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=2, limit=2)
    road.queue(card, "holder")
    road.settle_line(card)  # one held, one free
    first = road.ask(card, "first", quantity=2)
    road.admit(card, first)
    tickets = let_in(card, "second")
    places = reading.places(redis.connect(), card.sku, [first.request_id])
    assert [place.record.state for place in places if place] == [State.WAITLISTED]
    lose(card)
    view, _ = restore(tickets["second"], buyer="second")
    assert view.state is State.WAITLISTED


def test_what_came_back_leaves_nothing_for_the_reconciler(card: SaleCard) -> None:
    tickets = let_in(card, *BUYERS)
    road.settle_line(card)
    lose(card)
    restore_all(tickets)
    assert run(sale=card.slug, repair=False)["drifts"] == []
    road.settle_line(card)
    assert run(sale=card.slug, repair=False)["drifts"] == []


@pytest.mark.parametrize(("grace_seconds", "first"), [(600.0, BUYERS[0]), (0.0, "newcomer")])
def test_holders_of_tickets_are_decided_before_newcomers_after_a_loss(
    card: SaleCard, grace_seconds: float, first: str
) -> None:
    """The control: without the pause the newcomer gets the unit."""
    road.queue(card, "somebody")
    road.settle_line(card)  # one of two units
    tickets = let_in(card, *BUYERS[:3])
    with override_settings(RESTORE_GRACE_SECONDS=grace_seconds):
        lose(card)
        road.queue(card, "newcomer")
        assert bool(road.settle_line(card)) == (grace_seconds == 0)
        restore_all(tickets)
        if grace_seconds:
            # All but five seconds of the pause have passed: it is so long that no slow machine ends it before this.
            road.run(("HINCRBY", keys.stock(card.sku), "decide_from_us", -595_000_000))
            wait_until(lambda: road.settle_line(card), what="the pause is over")
    held = Order.objects.filter(sale_id=card.sale_id, state="held").exclude(buyer="somebody")
    assert [order.buyer for order in held] == [first]
    assert_books_balance(card)


def test_a_line_that_was_never_lost_is_decided_at_once(new_sku: Callable[[], str]) -> None:
    with override_settings(RESTORE_GRACE_SECONDS=60):
        card = make_sale(new_sku(), units=2)
        for number in range(2):
            road.queue(card, f"buyer-{number}")
            assert road.settle_line(card)
            priming.prime_sale(card.slug)
