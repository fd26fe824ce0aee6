"""One shard of a Cluster has no primary: the SKUs of all others are entered and decided as before, and its own go on
when it is back, or when its replica has taken over. Real servers, a web process, two settlers; the shard is killed and
frozen while people ask.

What is compared is counts of windows of the same run that take turns: with the shard, and without it.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db import connection

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.locks.lock import Lock
from inventory.redis import keys
from shop.sales.catalogue import SaleCard
from tests.support.crashes.ticket_crowd import Client, TicketCrowd
from tests.support.http_calls import Buyer, Caller
from tests.support.servers.server_matrix import (
    NODE_TIMEOUT_MS,
    Node,
    address_of,
    answers,
    cluster_of_six,
    cluster_of_three,
    cut_replica_off,
    take_over,
    wait_until_replica_has_all,
)
from tests.support.servers.shop_processes import running_process, web_process
from tests.support.shopkeeping import assert_books_balance, make_sale, shop_of
from tests.support.waiting import BLINK_SECONDS, wait_until
from workers.management.commands import run_worker
from workers.management.commands.run_worker import refuse_wrong_settings
from workers.reconciler.loop import Reconciler

UNITS = 100_000
WINDOW_SECONDS = 5.0
PATIENCE_SECONDS = 100.0
# More when the machine stood still in one of them: every round counts, and in the control none would help.
ROUNDS, MAX_ROUNDS = 2, 6
# People at each of the healthy shards' SKUs, and at those of the one that goes away.
PEOPLE, STUBBORN = 2, 1
# `make bench-shards` holds the promise, nine tenths. This is far from what a busy machine does to a window, and from
# the control: 0.
MIN_SHARE = 0.5
# Units of a sale, and people: those whom a replica has when it takes over, and those whom it never had.
SCARCE, KEPT, LOST = 20, 16, 16
# Longer than any takeover here.
LOCK_TTL_MS = 120_000
WHOLE, ONE_CLIENT = ("manage.py",), ("-m", "tests.support.crashes.one_client")


@dataclass
class Shop:
    """A web process and settlers on a Cluster. lost: the server that goes away, with the list of SKUs on it."""

    web: Caller
    lost: Node
    healthy: list[SaleCard]
    stricken: list[SaleCard]


@dataclass
class Window:
    """What people met. decided: by SKU; again: asks that had to be sent again; refused: answers that mean no."""

    decided: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    placed: list[tuple[str, Buyer]] = field(default_factory=list)
    again: int = 0


def server_of(nodes: Sequence[Node], key: str) -> Node:
    """Return the server that has `key`."""
    client = redis.connect()
    port = client.get_node_from_key(key).port
    return next(each for each in nodes if each.port == port)


def cards_by_shard(
    nodes: Sequence[Node], new_sku: Callable[[], str], *, lost: Node, units: int
) -> tuple[list[SaleCard], ...]:
    """Open a sale on each shard; return those of the healthy ones, and that of the other, which has so many units."""
    skus: dict[int, str] = {}
    while len(skus) < len(nodes):
        sku = new_sku()
        skus.setdefault(server_of(nodes, keys.line(sku)).port, sku)
    amounts = {port: units if port == lost.port else UNITS for port in skus}
    cards = {port: make_sale(sku, units=amounts[port], line_capacity=UNITS) for port, sku in skus.items()}
    return [card for port, card in cards.items() if port != lost.port], [cards[lost.port]]


@contextmanager
def shop_on_cluster(
    environment: dict[str, str], *, new_sku: Callable[[], str], folder: Path, program: Sequence[str]
) -> Iterator[Shop]:
    """Open a shop on a Cluster of its own. program: what Python runs."""
    with cluster_of_three(folder) as nodes:
        for each in nodes:
            each.run("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)
        with shop_on(nodes, environment, new_sku=new_sku, folder=folder, program=program) as shop:
            yield shop


@contextmanager
def shop_on(
    nodes: Sequence[Node],
    environment: dict[str, str],
    *,
    new_sku: Callable[[], str],
    folder: Path,
    program: Sequence[str] = WHOLE,
    units: int = UNITS,
) -> Iterator[Shop]:
    """Open a shop on these primaries. units: of the sale on the shard that goes away."""
    with ExitStack() as running:
        stores = {"REDIS_URL": address_of(nodes), "CACHE_URL": os.environ["REDIS_URL"]}
        own = {**environment, **stores, "DJANGO_SETTINGS_MODULE": "shop.settings"}
        running.enter_context(shop_of(own))
        lost = server_of(nodes, keys.skus())
        healthy, stricken = cards_by_shard(nodes, new_sku, lost=lost, units=units)
        connection.close()
        web = running.enter_context(web_process(own, folder=folder, program=program))
        for number in range(2):
            command = [sys.executable, *program, "run_worker", "settler"]
            running.enter_context(running_process(f"settler-{number}", command, environment=own, folder=folder))
        shop = Shop(web, lost, healthy, stricken)
        wait_until_decided(shop, [*healthy, *stricken])
        yield shop


def is_decided(shop: Shop, request_id: str, buyer: Buyer) -> bool:
    answer = shop.web.status(request_id, buyer)
    return answer.status == 200 and answer.json()["state"] not in ("queued", "standby")


def buy(shop: Shop, card: SaleCard, window: Window, ends: float) -> None:
    """Ask for one unit after the other, each when the one before is decided, until the window ends."""
    while time.monotonic() < ends:
        buyer = shop.web.new_buyer()
        answer = shop.web.ask(card.slug, buyer)
        while answer.status == 503:  # a busy machine may keep any server from answering in time
            window.again += 1
            if time.monotonic() >= ends + PATIENCE_SECONDS:
                break
            time.sleep(BLINK_SECONDS)
            answer = shop.web.ask(card.slug, buyer)
        if answer.status not in (200, 202):
            window.refused.append(f"{answer.status} {answer.body!r}")
            return
        name = answer.json()["request_id"]
        window.placed.append((name, buyer))
        while not is_decided(shop, name, buyer):
            if time.monotonic() >= ends:
                return
            time.sleep(BLINK_SECONDS)
        window.decided[card.sku] += 1


def knock(shop: Shop, card: SaleCard, window: Window, ends: float) -> None:
    """Ask for a unit of the shard that goes away, again and again; a refusal is expected there."""
    while time.monotonic() < ends:
        buyer = shop.web.new_buyer()
        answer = shop.web.ask(card.slug, buyer)
        if answer.status == 202:
            window.placed.append((answer.json()["request_id"], buyer))
        elif answer.status != 503:
            window.refused.append(f"{answer.status} {answer.body!r}")
        time.sleep(BLINK_SECONDS * 5)


def open_window(shop: Shop, *, at_start: Callable[[], object] = lambda: None) -> tuple[Window, Window]:
    """Let people ask for a while; return what those at the healthy shards met, and those at the other.

    at_start: called when some of them have been decided.
    """
    healthy, stricken = Window({card.sku: 0 for card in shop.healthy}), Window()
    ends = time.monotonic() + WINDOW_SECONDS
    work = [(buy, card, healthy) for card in shop.healthy for _ in range(PEOPLE)]
    work += [(knock, card, stricken) for card in shop.stricken for _ in range(STUBBORN)]
    threads = [threading.Thread(target=each, args=(shop, card, seen, ends)) for each, card, seen in work]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(healthy.decided.values()) or time.monotonic() >= ends)
    at_start()
    for thread in threads:
        thread.join(timeout=2 * PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    return healthy, stricken


@dataclass(frozen=True)
class Fault:
    """How a server goes away, and comes back."""

    strike: Callable[[Node], object]
    mend: Callable[[Node], object]


def kill(node: Node) -> None:
    """Kill a server; return when it has ended: its port is free then."""
    node.child.kill_group()
    assert node.child.wait(timeout_seconds=PATIENCE_SECONDS)


def start_again(node: Node) -> None:
    node.child.start()
    wait_until(lambda: answers(node.client))


FAULTS = {
    "killed": Fault(kill, start_again),
    "frozen": Fault(
        lambda node: os.kill(node.child.pid, signal.SIGSTOP), lambda node: os.kill(node.child.pid, signal.SIGCONT)
    ),
}


def place_of(shop: Shop, card: SaleCard, buyer: Buyer) -> str:
    """Ask once; return the id of the request, nothing without a place."""
    answer = shop.web.ask(card.slug, buyer)
    return str(answer.json()["request_id"]) if answer.status in (200, 202) else ""


def wait_until_decided(shop: Shop, cards: Sequence[SaleCard]) -> None:
    """Return when somebody was let in to each sale, and decided."""
    for card in cards:
        buyer = shop.web.new_buyer()
        name = wait_until(lambda buyer=buyer, card=card: place_of(shop, card, buyer))
        wait_until(lambda name=name, buyer=buyer: is_decided(shop, name, buyer), what="it is decided")


def assert_round_goes_on() -> None:
    """Fail unless a reconciler comes through a round: what it cannot read keeps it from nothing else."""
    Reconciler(redis.connect(timeout_seconds=5), stopping=lambda: False).work_once()
    connection.close()


def assert_degraded(shop: Shop) -> None:
    def degraded() -> bool:
        answer = shop.web.get("/readyz")
        return answer.status == 200 and f":{shop.lost.port}" in answer.json().get("detail", "")

    wait_until(degraded, what="it serves, and says what it misses")


def errors_of_lost(shop: Shop) -> float:
    """Return how many errors of the server that goes away the web process has counted, by its name."""
    page = shop.web.get("/metrics").body.decode()
    found = re.findall(rf'fairdrop_store_errors_total\{{node="[^"]+:{shop.lost.port}",store="redis"\}} (\S+)', page)
    return sum(map(float, found))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_skus_of_all_other_shards_go_on(
    fault: str,
    process_environment: dict[str, str],
    new_sku: Callable[[], str],
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    with shop_on_cluster(process_environment, new_sku=new_sku, folder=tmp_path, program=WHOLE) as shop:
        whole, without, again, placed = 0, 0, 0, []
        for number in range(MAX_ROUNDS):
            if number >= ROUNDS and without >= MIN_SHARE * whole:
                break
            before, others = open_window(shop)
            counted = errors_of_lost(shop)
            try:
                meanwhile, stricken = open_window(shop, at_start=lambda: FAULTS[fault].strike(shop.lost))
                assert_degraded(shop)
                wait_until(lambda counted=counted: errors_of_lost(shop) > counted, what="its errors are counted")
                assert_round_goes_on()
            finally:
                FAULTS[fault].mend(shop.lost)
            assert before.refused == meanwhile.refused == others.refused == stricken.refused == []
            whole += sum(before.decided.values())
            without += sum(meanwhile.decided.values())
            again += meanwhile.again
            for each in (before, others, meanwhile, stricken):
                placed += each.placed
            wait_until_decided(shop, shop.stricken)
        share = without / whole
        said = f"decided with the shard {whole}, without it {without} ({share:.2f}); asks sent again {again}"
        record_property("shard_away", said)
        print(said)
        for name, buyer in placed:
            wait_until(lambda name=name, buyer=buyer: is_decided(shop, name, buyer), what=f"{name} is decided")
        for card in (*shop.healthy, *shop.stricken):
            assert_books_balance(card)
        assert share >= MIN_SHARE


def test_control_with_one_client_for_all_shards_nothing_is_decided(
    process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    with shop_on_cluster(process_environment, new_sku=new_sku, folder=tmp_path, program=ONE_CLIENT) as shop:
        before, _ = open_window(shop)
        shop.lost.child.kill_group()
        meanwhile, _ = open_window(shop)
        assert sum(meanwhile.decided.values()) < MIN_SHARE * sum(before.decided.values())


@contextmanager
def ticket_crowd(shop: Shop, card: SaleCard) -> Iterator[TicketCrowd]:
    """Give a crowd that goes home at the end."""
    crowd = TicketCrowd(shop.web, card)
    try:
        yield crowd
    finally:
        crowd.finish()


def arrive(crowd: TicketCrowd, count: int) -> list[Client]:
    """Let so many people more come; return them when each has a place."""
    before = len(crowd.clients)
    crowd.send(count)
    came = crowd.clients[before:]
    wait_until(lambda: all(client.ticket for client in came), what=f"{count} more are in line")
    return came


def refuses(shop: Shop, card: SaleCard) -> bool:
    return shop.web.ask(card.slug, shop.web.new_buyer()).status == 503


def released(lock: Lock) -> bool:
    """Give a lock back; say whether its server answered."""
    try:
        lock.release()
    except RedisUnavailable:
        return False
    return True


def test_a_replica_takes_over_and_tickets_bring_back_what_it_never_had(
    process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """Controls: those whom the replica had need no ticket; a primary that must have a replica lets nobody in."""
    with (
        cluster_of_six(tmp_path) as (primaries, replicas),
        shop_on(primaries, process_environment, new_sku=new_sku, folder=tmp_path, units=SCARCE) as shop,
        ticket_crowd(shop, shop.stricken[0]) as crowd,
    ):
        replica = replicas[primaries.index(shop.lost)]
        lock = Lock(redis.connect(), crowd.card.sku, ttl_ms=LOCK_TTL_MS)
        assert lock.acquire(timeout_seconds=PATIENCE_SECONDS)  # nobody in this line is decided before the takeover
        kept = arrive(crowd, KEPT)
        wait_until_replica_has_all(shop.lost, replica)
        cut_replica_off(shop.lost, replica)
        shop.lost.run("CONFIG", "SET", "min-replicas-to-write", 1)
        assert refuses(shop, crowd.card)
        shop.lost.run("CONFIG", "SET", "min-replicas-to-write", 0)
        lost = arrive(crowd, LOST)
        shop.lost.child.kill_group()
        wait_until_decided(shop, shop.healthy)
        assert refuses(shop, crowd.card)
        take_over(replica, others=[each for each in primaries if each is not shop.lost])
        over_at = time.monotonic()
        wait_until(lambda: all(client.heard_at > over_at for client in crowd.clients), what="everybody has a place")
        wait_until(lambda: released(lock), what="the lock is given back")
        wait_until(lambda: {client.state for client in crowd.clients} == {"held", "waitlisted"}, what="all are decided")
        assert_books_balance(crowd.card)  # also before somebody new asks, which primes the sale at its new server
        wait_until_decided(shop, [*shop.healthy, *shop.stricken])
        for card in (*shop.healthy, *shop.stricken):
            assert_books_balance(card)
    assert [client.restored for client in kept] == [0] * KEPT
    assert any(client.restored for client in lost)
    assert sum(client.state == "held" for client in crowd.clients) == SCARCE - 1  # one was there from the beginning


def test_a_cluster_whose_shards_stop_each_other_is_refused_by_name(
    process_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A Cluster that does not answer in time is not judged, and a busy machine may keep it from that.
    monkeypatch.setattr(run_worker, "CLOCK_TIMEOUT_SECONDS", 60)
    with cluster_of_three(tmp_path) as nodes, shop_of({**process_environment, "REDIS_URL": address_of(nodes)}):
        refuse_wrong_settings()
        nodes[1].run("CONFIG", "SET", "cluster-require-full-coverage", "yes")
        with pytest.raises(CommandError, match=f"cluster-require-full-coverage is yes on 127.0.0.1:{nodes[1].port}"):
            refuse_wrong_settings()
