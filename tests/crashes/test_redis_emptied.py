"""Proves that nobody who was admitted is lost when Redis loses everything, or PostgreSQL falls, in mid-flood.
Real processes on stores of their own; the crowd holds tickets. Controls: without tickets, and without a reconciler.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from inventory import redis
from inventory.audit import line as audit_line
from inventory.line import priming, reading
from loadtest.record.log_sentences import is_in_order
from loadtest.record.tickets import TicketWriter
from loadtest.run.public_logs import check_log
from loadtest.shop_api import ShopApi
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.crashes.fault_shop import unguarded_settler
from tests.support.crashes.ticket_crowd import Client, TicketCrowd
from tests.support.crashes.worker_shop import WorkerShop, drifts, own_stores, wake, worker_shop
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.shopkeeping import assert_books_balance, audit_of, close_sale, fill_line, make_sale
from tests.support.waiting import wait_until

UNITS, FIRST, LATER = 120, 240, 80
SETTLED = {"held", "waitlisted"}


@pytest.fixture
def shop(process_environment: dict[str, str], tmp_path: Path) -> Iterator[WorkerShop]:
    """Run both stores; small batches make a long flood."""
    environment = {**process_environment, "FAIRDROP_SETTLE_BATCH": "4"}
    with own_stores(environment, folder=tmp_path) as stores, worker_shop(stores, folder=tmp_path) as own:
        yield own


@pytest.fixture
def card(shop: WorkerShop, new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale with far fewer units than buyers will come."""
    # No hold ends before the test does.
    return make_sale(new_sku(), units=UNITS, line_capacity=FIRST + LATER, hold_seconds=7200)


@pytest.fixture
def web(shop: WorkerShop, card: SaleCard) -> Iterator[Caller]:
    """Run the web process, and wait until it shows the sale."""
    with web_process(shop.environment, folder=shop.folder, program=program_with(PATIENT_WEB)) as caller:
        wait_until(lambda: caller.get(f"/api/v1/sales/{card.slug}").status == 200)
        yield caller


def start_workers(shop: WorkerShop) -> None:
    """Start two settlers, an expirer, a reconciler and a notary."""
    for name in ("settler-1", "settler-2", "expirer", "reconciler", "notary"):
        shop.start(name.partition("-")[0], name=name)


def flood(
    shop: WorkerShop, card: SaleCard, crowd: TicketCrowd, strike: Callable[[], None], *, after: int = LATER // 2
) -> float:
    """Let the first buyers in, start the workers, strike while they work, and let `after` more come; return when."""
    crowd.send(FIRST)
    wait_until(lambda: len(crowd.admitted) == FIRST, what="the first are in line")
    start_workers(shop)
    wait_until(lambda: decided(card) >= 20, what="some are decided")
    crowd.send(LATER // 2)
    strike()
    crowd.send(after)
    return time.monotonic()


def decided(card: SaleCard) -> int:
    figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    return figures.decided if figures else 0


def wait_until_known(crowd: TicketCrowd, *, since: float) -> None:
    """Return when everybody has a ticket, and has heard since then where they stand."""

    def known() -> bool:
        assert crowd.failures == []
        everybody = len(crowd.admitted) == FIRST + LATER
        return everybody and all(
            client.lost or (client.state in SETTLED and client.heard_at > since) for client in crowd.clients
        )

    wait_until(known, what="everybody holds a unit or waits for one")


def assert_nobody_was_lost(card: SaleCard, crowd: TicketCrowd) -> None:
    """Fail unless everyone with a ticket is decided when the sale ends, each unit has a buyer, the books balance."""
    close_sale(card)
    wait_until(
        lambda: audit_line.look(redis.connect(), card.sku)[:2] == (0, 0),
        what="all decided",
    )
    orders = dict(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", "state"))
    assert set(orders) == {client.request_id for client in crowd.admitted}
    assert sorted(orders.values()) == ["held"] * UNITS + ["sold_out"] * (FIRST + LATER - UNITS)
    wait_until(lambda: drifts(card.slug) == [], what="nothing is left to mend")
    counts = assert_books_balance(card)
    assert (counts["available"], counts["units_held"]) == (0, UNITS)
    in_turn = Order.objects.filter(sale_id=card.sale_id, restored=False).order_by("id").values_list("seq", flat=True)
    assert list(in_turn) == sorted(in_turn)


def assert_log_holds(shop: WorkerShop, card: SaleCard, crowd: TicketCrowd) -> None:
    """Fail unless the sale's public log holds by every rule, also by the ticket of everyone."""
    tickets = TicketWriter(shop.folder)
    for client in crowd.admitted:
        tickets.add(client.ticket, sale=card.slug)
    tickets.close()
    api = ShopApi(f"http://127.0.0.1:{crowd.web.port}")
    text = check_log(api, card.slug, audit=audit_of(card), folder=shop.folder)
    assert (is_in_order(text), f"{FIRST + LATER:,} tickets" in text) == (True, True), text


def empty(shop: WorkerShop) -> None:
    """Let Redis lose everything it knows."""
    redis.connect().flushall()


def cut_log(folder: Path, *, keep: float) -> None:
    """Cut the log of a Redis that does not run: its first part (0 to 1) is left, perhaps with half a command."""
    (log,) = folder.glob("**/appendonlydir/*.incr.aof")
    os.truncate(log, int(log.stat().st_size * keep))


def test_redis_emptied_in_the_middle_of_a_flood_loses_nobody_with_a_ticket(
    shop: WorkerShop, card: SaleCard, web: Caller
) -> None:
    crowd = TicketCrowd(web, card)
    try:
        struck_at = flood(shop, card, crowd, lambda: empty(shop))
        wait_until_known(crowd, since=struck_at)
        assert sum(client.restored for client in crowd.clients) > 0, "the test is inconclusive: nobody's place was lost"
        assert_nobody_was_lost(card, crowd)
        assert_log_holds(shop, card, crowd)
        shop.assert_all_run()
    finally:
        crowd.finish()


def test_without_tickets_the_admitted_are_lost(shop: WorkerShop, card: SaleCard, web: Caller) -> None:
    """The control: the same flood, and nobody shows a ticket; the same check must go red."""
    crowd = TicketCrowd(web, card, restoring=False)
    try:
        struck_at = flood(shop, card, crowd, lambda: empty(shop))
        wait_until_known(crowd, since=struck_at)
        assert any(client.lost for client in crowd.clients)
        with pytest.raises(AssertionError):
            assert_nobody_was_lost(card, crowd)
        shop.assert_all_run()
    finally:
        crowd.finish()


def test_redis_emptied_twice_loses_nobody_either(shop: WorkerShop, card: SaleCard, web: Caller) -> None:
    """The second time while the first loss is being mended."""
    crowd = TicketCrowd(web, card)

    def strike() -> None:
        empty(shop)
        wait_until(lambda: any(client.restored for client in crowd.clients))
        empty(shop)

    try:
        struck_at = flood(shop, card, crowd, strike)
        wait_until_known(crowd, since=struck_at)
        assert_nobody_was_lost(card, crowd)
        shop.assert_all_run()
    finally:
        crowd.finish()


def test_a_log_that_lost_its_last_writes_loses_nobody_and_sells_nothing_twice(
    shop: WorkerShop, card: SaleCard, web: Caller
) -> None:
    """A killed Redis loses nothing that it wrote (R3), so its log is cut, as by a disk that lied and a power failure.

    Redis is then behind PostgreSQL: for a moment a buyer may be told "queued" after "held". Nobody loses a unit by it.
    """
    crowd = TicketCrowd(web, card, backwards=frozenset())
    held_before: list[Client] = []

    def strike() -> None:
        shop.valkey.kill()
        held_before.extend(client for client in crowd.clients if client.state == "held")
        cut_log(shop.folder, keep=0.6)
        shop.valkey.start_again()

    try:
        struck_at = flood(shop, card, crowd, strike)
        wait_until_known(crowd, since=struck_at)
        assert sum(client.restored for client in crowd.clients) > 0, "the test is inconclusive: the log had all of it"
        assert_nobody_was_lost(card, crowd)
        states = dict(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", "state"))
        assert {states[client.request_id] for client in held_before} == {"held"}
        shop.assert_all_run()
    finally:
        crowd.finish()


def test_postgres_stopped_at_once_in_the_middle_of_a_flood_loses_nobody(
    shop: WorkerShop, card: SaleCard, web: Caller
) -> None:
    crowd = TicketCrowd(web, card)

    def strike() -> None:
        shop.postgres.stop_at_once()
        crowd.send(LATER // 2)  # who came before may all be in line by now
        everybody = FIRST + LATER
        wait_until(lambda: len(crowd.admitted) == everybody, what="the line is open")
        connection.close()
        shop.postgres.start_again()

    try:
        struck_at = flood(shop, card, crowd, strike, after=0)
        wait_until_known(crowd, since=struck_at)
        assert sum(client.restored for client in crowd.clients) == 0
        assert_nobody_was_lost(card, crowd)
        shop.assert_all_run()
    finally:
        crowd.finish()


def is_gate_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0")
        return bool(cursor.fetchone()[0])


def test_what_is_committed_while_redis_is_empty_is_known_once_it_is_primed(
    shop: WorkerShop, card: SaleCard, web: Caller
) -> None:
    """Its settler was frozen before its COMMIT; its lock, its flight and its line were gone when it woke up."""
    fill_line(card, buyers=20)
    fault = "in_transaction:stop:2"
    with unguarded_settler("idle timeout", shop.environment, folder=shop.folder, fault=fault, name="victim") as victim:
        victim.wait_until_it_reaches("in_transaction")
        empty(shop)
        wait_until(is_gate_waiting, what="the gate primes the sale, and waits for the stock's row")
        assert not priming.is_primed(redis.connect(), card.sku)
        wake(victim.process)
        wait_until(lambda: Order.objects.filter(sale_id=card.sale_id).count() == 8)
    wait_until(lambda: priming.is_primed(redis.connect(), card.sku), what="the gate primes the sale")
    assert [each for each in drifts(card.slug) if each["kind"] == "unknown_order"] == []
    names = list(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", flat=True))
    places = reading.places(redis.connect(), card.sku, names)
    assert [place.record.state for place in places if place] == ["held"] * 8
    assert_books_balance(card)
