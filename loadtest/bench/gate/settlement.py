"""Measures settlement without the web: a line is filled by the admission script, then the real settler empties it.
Never writes an order by itself.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from django.conf import settings

from inventory.line import admission
from inventory.line.admission import Ask, Code, SaleLine
from inventory.records import request_id
from inventory.redis import Client, connect, run_commands
from loadtest.bench.harness.benchmark import say
from loadtest.bench.harness.fixtures import Fixture
from shop.buyers import issue_buyer
from workers.settler import Settler

BATCH = 500
# As many as several batches: PostgreSQL plans a statement again the first five times.
WARM_UP_REQUESTS = {BATCH: 5_000, 1: 20}
MAX_SECONDS = 60.0
CLIENT_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """Orders a second by batches and one by one, bytes of Redis a queued request. rates: of each round, by batch."""

    batched_per_second: float
    single_per_second: float
    bytes_per_request: float
    rates: dict[int, list[float]]


def measure_settlement(
    fixture: Fixture, *, rounds: int, batched: int, single: int, after_batches: Callable[[], None] = lambda: None
) -> Settlement:
    """Settle `batched` requests at batch 500 and `single` ones at batch 1 in turns; return the middle rates.

    after_batches: what is measured of them each time.
    """
    client = connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS)
    rates: dict[int, list[float]] = {BATCH: [], 1: []}
    sizes: list[float] = []
    with ExitStack() as stack:
        settlers = {batch: stack.enter_context(warm_settler(client, fixture, batch=batch)) for batch in rates}
        for _ in range(rounds):
            for batch, count in ((BATCH, batched), (1, single)):
                before = used_memory(client)
                fill_line(client, fixture, count=count)
                if batch == BATCH:
                    sizes.append((used_memory(client) - before) / count)
                rates[batch].append(count / empty_line(settlers[batch], count=count))
                say(f"  batch {batch:>3}: {rates[batch][-1]:>8,.0f} orders/s")
                if batch == BATCH:
                    after_batches()
    return Settlement(
        batched_per_second=statistics.median(rates[BATCH]),
        single_per_second=statistics.median(rates[1]),
        bytes_per_request=statistics.median(sizes),
        rates=rates,
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
    """Let `asks` into the line of a sale. Raises RuntimeError when one is not let in."""
    line = SaleLine(fixture.sale_id, fixture.sku)
    for start in range(0, len(asks), admission.MAX_PER_CALL):
        answers = admission.admit(client, line, asks[start : start + admission.MAX_PER_CALL])
        if any(answer.code != Code.ADMITTED for answer in answers):
            raise RuntimeError("a request was not admitted: nothing can be measured")


def fresh_ask(fixture: Fixture) -> Ask:
    """Return an ask for one unit by a new buyer."""
    buyer, _token = issue_buyer()
    name = request_id(sale_id=fixture.sale_id, request_key=fixture.request_key, buyer=buyer, idempotency_key="")
    return Ask(name, buyer, 1)


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
    settler = Settler(client, batch=batch, lock_ttl_ms=settings.LOCK_TTL_MS, stopping=stopping)
    try:
        fill_line(client, fixture, count=count)
        empty_line(settler, count=count)
        yield settler
    finally:
        settler.close()


def empty_line(settler: Settler, *, count: int) -> float:
    """Settle the `count` requests that wait; return the seconds it took. Raises RuntimeError when it never ends."""
    began = time.monotonic()
    left = count
    while left > 0:
        left -= settler.work_once()
        if time.monotonic() - began > MAX_SECONDS:
            raise RuntimeError(f"{left} of {count} requests are still not settled")
    return time.monotonic() - began
