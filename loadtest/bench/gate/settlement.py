"""Measures settlement without the web: a line is filled by the admission script, then the real settler empties it.
Never writes an order by itself.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from django.conf import settings

from inventory.line import admission
from inventory.line.admission import Ask, Code, SaleLine
from inventory.records import request_id
from inventory.redis import Client, connect, run_commands
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import repeat_disturbed
from loadtest.bench.harness.fixtures import Fixture
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import address
from shop.buyers import issue_buyer
from shop.client_address import network_of
from workers.expirer import Expirer
from workers.settler import Settler

BATCH = 500
# As many as several batches: PostgreSQL plans a statement again the first five times.
WARM_UP_REQUESTS = {BATCH: 5_000, 1: 20}
MAX_SECONDS = 60.0
# Of the buyers of this process: each has another address.
NUMBERS = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Emptied:
    """A line that was filled and settled. bytes_each: of Redis, as it waited; cpu_us: of the settler for an order.

    limit: what was measured of it afterwards.
    """

    per_second: float
    cpu_us: float
    bytes_each: float
    limit: float
    stolen: float


def measure_settlement(
    fixture: Fixture, *, rounds: int, batched: int, single: int, after_batches: Callable[[], float] = lambda: 0.0
) -> dict[int, list[Emptied]]:
    """Settle `batched` requests at batch 500 and `single` ones at batch 1 in turns; return every round, by batch.

    after_batches: what is measured of them each time, as their limit. A round that the host disturbed is measured
    again, with what comes after it.
    """
    client = connect()
    emptied: dict[int, list[Emptied]] = {BATCH: [], 1: []}
    with ExitStack() as stack:
        settlers = {batch: stack.enter_context(warm_settler(client, fixture, batch=batch)) for batch in emptied}
        for _ in range(rounds):
            for batch, count in ((BATCH, batched), (1, single)):
                after = after_batches if batch == BATCH else lambda: 0.0
                once = partial(_fill_and_empty, client, fixture, settlers[batch], count=count, after=after)
                emptied[batch].append(repeat_disturbed(once, of=f"batch {batch}"))
    return emptied


def _fill_and_empty(
    client: Client, fixture: Fixture, settler: Settler, *, count: int, after: Callable[[], float]
) -> Emptied:
    before = used_memory(client)
    fill_line(client, fixture, count=count)
    size = used_memory(client) - before
    stolen, cpu_seconds = machine.Stolen(), time.process_time()
    seconds = empty_line(settler, count=count)
    cpu_us = (time.process_time() - cpu_seconds) / count * 1e6
    limit = after()
    return Emptied(
        per_second=count / seconds, cpu_us=cpu_us, bytes_each=size / count, limit=limit, stolen=stolen.share()
    )


def used_memory(client: Client) -> int:
    """Return the bytes Redis has allocated for its data."""
    (text,) = run_commands(client, [("INFO", "memory")])
    return int(text["used_memory"])


def fill_line(client: Client, fixture: Fixture, *, count: int) -> None:
    """Admit `count` requests, each of a new buyer."""
    for start in range(0, count, admission.MAX_PER_CALL):
        admit(client, fixture, [fresh_ask(fixture) for _ in range(min(admission.MAX_PER_CALL, count - start))])


def admit(client: Client, fixture: Fixture, asks: Sequence[Ask]) -> None:
    """Let `asks` into the line of a sale. Raises LoadFailed when one is not let in."""
    line = SaleLine(fixture.sale_id, fixture.sku, fixture.network_limit)
    for start in range(0, len(asks), admission.MAX_PER_CALL):
        answers = admission.admit(client, line, asks[start : start + admission.MAX_PER_CALL])
        if any(answer.code != Code.ADMITTED for answer in answers):
            raise LoadFailed("a request was not admitted: nothing can be measured")


def fresh_ask(fixture: Fixture) -> Ask:
    """Return an ask for one unit by a new buyer, from a network of their own: as the gate hands it on."""
    buyer, _token = issue_buyer()
    name = request_id(sale_id=fixture.sale_id, request_key=fixture.request_key, buyer=buyer, idempotency_key="")
    return Ask(name, buyer, 1, network=network_of(address(next(NUMBERS))))


@contextmanager
def warm_settler(
    client: Client,
    fixture: Fixture,
    *,
    batch: int,
    warm_up: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Settler]:
    """Yield a settler that has settled `warm_up` requests: its connection and its plans are there."""
    count = WARM_UP_REQUESTS[batch] if warm_up is None else warm_up
    with closing(Settler(client, batch=batch, lock_ttl_ms=settings.LOCK_TTL_MS, stopping=stopping)) as settler:
        fill_line(client, fixture, count=count)
        empty_line(settler, count=count)
        yield settler


def empty_line(worker: Settler | Expirer, *, count: int) -> float:
    """Let it settle, or end, the `count` that wait; return the seconds. Raises LoadFailed when that takes too long."""
    began = time.monotonic()
    left = count
    while left > 0:
        left -= worker.work_once()
        if time.monotonic() - began > MAX_SECONDS:
            raise LoadFailed(f"{left} of {count} still wait for the worker after {MAX_SECONDS:g} s")
    return time.monotonic() - began
