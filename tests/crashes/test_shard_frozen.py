"""One shard of a Cluster is frozen: its connections stay open and nothing answers. Each process waits for it once, not
once a round or a SKU, and does the work of all other SKUs in every round meanwhile.

Real servers; each worker's own steps, in this process. Counted is how often a call timed out, not how long
anything took. Control: with the note of who is away switched off, every round waits.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, islice, pairwise
from typing import Any

import pytest
from django.db import connection
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import LineNotTold
from inventory.line import admission
from inventory.line.admission import SaleLine
from inventory.redis import client, commands, keys, scripts, servers, subscriptions
from inventory.redis.shards import Topology
from shop.models import Order
from shop.salelog.models import SaleLog
from shop.sales.catalogue import SaleCard
from tests.conftest import MADE_SKUS
from tests.crashes.test_shard_away import server_of
from tests.support import road
from tests.support.sale_logs import publish
from tests.support.servers.server_matrix import Node, address_of, cluster_of_three
from tests.support.shopkeeping import decided_count, let_holds_end, make_sale, pay, put_away
from tests.support.waiting import wait_until
from workers.expirer import Expirer
from workers.notary import Notary
from workers.reconciler.loop import Reconciler
from workers.settler import Settler

ROUNDS, SKUS_A_SHARD = 3, 2
# Longer than the shop's own: a busy machine does not reach it at the servers that answer. The control waits often.
TIMEOUT_SECONDS, CONTROL_TIMEOUT_SECONDS = 5.0, 3.0
TIMEOUTS = (redis.client.RedisTimeoutError, TimeoutError)


@dataclass
class Sales:
    """lost: the server that is frozen, with the list of SKUs on it; waits: calls to it that timed out."""

    lost: Node
    healthy: list[SaleCard]
    out_of_reach: list[SaleCard]
    waits: list[BaseException] = field(default_factory=list)

    @property
    def cards(self) -> list[SaleCard]:
        """Every sale; those that will be lost come first."""
        return [*self.out_of_reach, *self.healthy]


# Makes itself ready, then does a round at each step; gives how much of the healthy SKUs' work is done by then.
Rounds = Callable[[Sales], Generator[int]]


def let_in(card: SaleCard, *buyers: str) -> list[str]:
    """Let each buyer ask for one unit; return the request ids."""
    asks = [road.ask(card, buyer) for buyer in buyers]
    assert {answer.code for answer in road.admit(card, *asks)} == {admission.Code.ADMITTED}
    return [ask.request_id for ask in asks]


def settling(sales: Sales) -> Generator[int]:
    """Decide somebody of each healthy SKU a round; at the others somebody waits too."""
    worker = Settler(
        redis.connect(),
        batch=road.BATCH,
        lock_ttl_ms=road.SETTLER_LOCK_TTL_MS,
        stopping=lambda: False,
    )
    for card in sales.out_of_reach:
        let_in(card, "waits")
    try:
        for number in count():
            yield sum(map(decided_count, sales.healthy))
            for card in sales.healthy:
                let_in(card, f"buyer-{number}")
            worker.work_once()
    finally:
        worker.close()


def held(sales: Sales) -> list[list[str]]:
    """Hold units for as many buyers as there are rounds at every SKU; return a round's requests each."""
    names = [let_in(card, *(f"buyer-{number}" for number in range(ROUNDS + 1))) for card in sales.cards]
    for card in sales.cards:
        road.settle_line(card)
    return [list(each) for each in zip(*names, strict=True)]


def in_state(sales: Sales, state: str) -> int:
    """Return how many orders of the healthy SKUs are in that state."""
    return Order.objects.filter(sale_id__in=[card.sale_id for card in sales.healthy], state=state).count()


def expiring(sales: Sales) -> Generator[int]:
    """End one hold of each SKU a round."""
    worker = Expirer(stopping=lambda: False)
    try:
        for names in held(sales):
            yield in_state(sales, "expired")
            let_holds_end(*names)
            worker.work_once()
    finally:
        worker.close()


def paying(sales: Sales) -> Generator[int]:
    """Take a notice of payment for one unit of each SKU a round."""
    for names in held(sales):
        yield in_state(sales, "paid")
        for name in names:
            with suppress(LineNotTold):
                pay(name)


def publishing(sales: Sales) -> Generator[int]:
    """Publish an admission of each healthy SKU a round."""
    worker = Notary(redis.connect())
    publish(worker)  # the logs have begun, and what earlier tests left is read
    for number in count():
        logs = SaleLog.objects.filter(sale_id__in=[card.sale_id for card in sales.healthy])
        yield sum(logs.values_list("size", flat=True))
        for card in sales.healthy:
            let_in(card, f"buyer-{number}")
        worker.work_once()


def comparing(sales: Sales) -> Generator[int]:
    """Compare every SKU a round: a reconciler that has just begun."""
    compared = 0
    while True:
        yield compared
        one = Reconciler(redis.connect(), stopping=lambda: False)
        one.work_once()
        compared += sum(card.sku in one._comparisons for card in sales.healthy)


def letting_in(sales: Sales) -> Generator[int]:
    """Let somebody in at every SKU a round, all at once as the gate does."""
    with asyncio.Runner() as runner:
        line, entered = runner.run(_open()), 0
        try:
            for number in count():
                yield entered
                entered += runner.run(_ask_everywhere(line, sales, buyer=f"buyer-{number}"))
        finally:
            runner.run(redis.close_async(line))


async def _open() -> redis.AsyncClient:
    return redis.connect_async()


async def _ask_everywhere(line: redis.AsyncClient, sales: Sales, *, buyer: str) -> int:
    lines = [(SaleLine(card.sale_id, card.sku), road.ask(card, buyer)) for card in sales.cards]
    asks = [admission.admit_async(line, each, [ask]) for each, ask in lines]
    answers = await asyncio.gather(*asks, return_exceptions=True)
    return sum(isinstance(each, list) for each in answers)


# With how many calls may be under way as the shard is frozen.
PROCESSES: dict[str, tuple[Rounds, int]] = {
    "settler": (settling, 1),
    "expirer": (expiring, 1),
    "payments": (paying, 1),
    "notary": (publishing, 1),
    "reconciler": (comparing, 1),
    "web": (letting_in, SKUS_A_SHARD),
}


def cards_on(nodes: Sequence[Node], new_sku: Callable[[], str]) -> dict[int, list[SaleCard]]:
    """Open so many sales on each server; return them by its port."""
    skus: dict[int, list[str]] = {node.port: [] for node in nodes}
    while min(map(len, skus.values())) < SKUS_A_SHARD:
        sku = new_sku()
        skus[server_of(nodes, keys.line(sku)).port].append(sku)
    return {port: [make_sale(sku, units=100) for sku in each[:SKUS_A_SHARD]] for port, each in skus.items()}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Run a Cluster for all tests of this module."""
    with cluster_of_three(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def sales(
    nodes: list[Node], shop_database: None, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sales]:
    """Open sales on every shard, and note each call of this thread that times out at the lost one."""
    with override_settings(REDIS_URL=address_of(nodes), REDIS_TIMEOUT_SECONDS=TIMEOUT_SECONDS):
        lost = server_of(nodes, keys.skus())
        cards = cards_on(nodes, new_sku)
        out_of_reach = cards.pop(lost.port)
        found = Sales(lost, [card for each in cards.values() for card in each], out_of_reach)
        note_waits(found, monkeypatch)
        yield found
        put_away(MADE_SKUS)
        connection.close()


def note_waits(sales: Sales, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call that fails be noted as it is reported: what a thread of the background waits for is not."""
    report = client.unavailable

    def noting(cause: BaseException, *args: Any, **named: Any) -> Any:
        own = getattr(args[1], "fairdrop_shard", "") if len(args) > 1 else ""
        is_lost = own.endswith(f":{sales.lost.port}")
        if is_lost and isinstance(cause, TIMEOUTS) and threading.current_thread() is threading.main_thread():
            sales.waits.append(cause)
        return report(cause, *args, **named)

    for module in (commands, scripts, servers, subscriptions):  # each has it by its own name
        monkeypatch.setattr(module, "unavailable", noting)


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    """Let a server stand still for the length of a block; at its end it is known to be back."""
    os.kill(node.child.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.child.pid, signal.SIGCONT)
        wait_until(lambda: not redis.away(redis.connect()), what="the shard is back")


def progress_of(rounds: Rounds, sales: Sales) -> list[int]:
    """Return how much was done before each round and after the last, all of them with the shard frozen."""
    with closing(rounds(sales)) as steps:
        before = next(steps)
        with frozen(sales.lost):
            return [before, *islice(steps, ROUNDS)]


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_waits_once_for_a_frozen_shard(process: str, sales: Sales) -> None:
    rounds, under_way = PROCESSES[process]
    done = progress_of(rounds, sales)
    assert len(done) == ROUNDS + 1
    assert all(after - before >= len(sales.healthy) for before, after in pairwise(done)), done
    assert 1 <= len(sales.waits) <= under_way


@pytest.mark.parametrize("process", PROCESSES)
def test_control_without_a_note_of_who_is_away_every_round_waits(
    process: str, sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Topology, "note_failure", lambda *_args, **_named: None)
    rounds, _ = PROCESSES[process]
    with override_settings(REDIS_TIMEOUT_SECONDS=CONTROL_TIMEOUT_SECONDS):
        progress_of(rounds, sales)
    assert len(sales.waits) >= ROUNDS
