"""A slot of a Cluster moves to another server while people are let in and decided: nobody is lost or sold to twice.
Real servers, the move key by key as operators do it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.test.utils import override_settings

from inventory import redis
from inventory.audit import line
from inventory.exceptions import RedisUnavailable
from inventory.line import admission
from inventory.line.admission import Ask, Code, SaleLine
from inventory.redis import keys
from shop.models import Order
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.servers.server_matrix import ServerGroups
from tests.support.shopkeeping import assert_books_balance, close_sale, make_sale
from tests.support.waiting import wait_until

UNITS = 40
# Keys lie on both servers until a call that needs all of them was turned away, and after each key for as long at most:
# a client asks again by itself for 0.4 s first.
HALF_WAY_SECONDS = 30.0
PATIENCE_SECONDS = 120


@dataclass
class Crowd:
    """People who come one after the other; each asks by the same id until the line answers. turned_away: calls."""

    card: SaleCard
    asked: list[str] = field(default_factory=list)
    turned_away: int = 0
    failures: list[str] = field(default_factory=list)

    def come(self, stop: threading.Event) -> None:
        """Let people come until told to stop."""
        while not stop.is_set():
            wish = road.ask(self.card, f"buyer-{len(self.asked)}")
            self.asked.append(wish.request_id)
            self._ask(wish)
            time.sleep(0.002)

    def wait_until_turned_away(self) -> None:
        """Wait until somebody was turned away at least once, HALF_WAY_SECONDS at most."""
        deadline = time.monotonic() + HALF_WAY_SECONDS
        while not self.turned_away and time.monotonic() < deadline:
            time.sleep(0.02)

    def _ask(self, wish: Ask) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                (answer,) = admission.admit(redis.connect(), SaleLine(self.card.sale_id, self.card.sku), [wish])
                if answer.code == Code.NOT_PRIMED:  # another server than the one it was primed at
                    priming.prime_sale(self.card.slug)
                    connection.close()  # a thread's own
                    continue
            except RedisUnavailable:
                self.turned_away += 1
                continue
            if answer.code != Code.ADMITTED and answer.code < Code.KNOWN_BEFORE:
                self.failures.append(f"{wish.request_id}: {answer}")
            return
        self.failures.append(f"{wish.request_id}: no answer")


def decide(stop: threading.Event) -> None:
    """Be a settler until told to stop."""
    try:
        with road.settler(batch=5) as worker:
            while not stop.is_set():
                try:
                    worker.work_once()
                except RedisUnavailable:
                    time.sleep(0.02)
    finally:
        connection.close()


@contextmanager
def running(*steps: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run each step in a thread for the length of a block."""
    stop = threading.Event()
    threads = [threading.Thread(target=step, args=(stop,)) for step in steps]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in threads)


def move_slot(sku: str, *, half_way: Callable[[], None]) -> int:
    """Move the slot of `sku` from its server to another one, key by key; return how many keys moved.

    half_way: called after each key, while the slot lies on both servers.
    """
    client = redis.connect()
    slot = client.keyslot(keys.line(sku))
    source = client.nodes_manager.get_node_from_slot(slot)
    target = next(node for node in client.get_primaries() if node.name != source.name)
    source_client, target_client = (client.get_redis_connection(node) for node in (source, target))
    source_id, target_id = (str(each.execute_command("CLUSTER MYID")) for each in (source_client, target_client))
    target_client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
    source_client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
    moved = 0
    while names := source_client.execute_command("CLUSTER GETKEYSINSLOT", slot, 1):
        source_client.execute_command("MIGRATE", target.host, target.port, "", 0, 60_000, "KEYS", *names)
        moved += len(names)
        half_way()
    for each in (target_client, source_client):
        each.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
    return moved


def finish(card: SaleCard) -> None:
    """Decide all who are left; the lock of a settler that was turned away ends by itself first."""

    def done() -> bool:
        worker.work_once()
        return line.look(redis.connect(), card.sku)[:2] == (0, 0)

    with road.settler() as worker:
        wait_until(done, what="all are decided")


def test_nobody_is_lost_while_a_slot_moves(
    server_groups: ServerGroups, shop_database: None, new_sku: Callable[[], str]
) -> None:
    with override_settings(REDIS_URL=server_groups.url("cluster")):
        card = make_sale(new_sku(), units=UNITS, line_capacity=100_000)
        crowd = Crowd(card)
        with running(crowd.come, decide):
            wait_until(lambda: len(crowd.asked) > 20, what="people come")
            moved = move_slot(card.sku, half_way=crowd.wait_until_turned_away)
            came = len(crowd.asked)
            wait_until(lambda: len(crowd.asked) > came + 20, what="they go on coming")
        assert crowd.failures == []
        assert moved >= 4
        assert crowd.turned_away > 0, "the test is inconclusive: every call found all of its keys together"
        close_sale(card)
        finish(card)
        orders: list[Any] = list(
            Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("request_id", "state")
        )
        assert [request_id for request_id, _ in orders] == crowd.asked, "everybody once, in the order they came"
        assert [state for _, state in orders] == ["held"] * UNITS + ["sold_out"] * (len(orders) - UNITS)
        assert_books_balance(card)
