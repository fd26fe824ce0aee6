"""Measures purchases alongside open streams and without, in pairs of rounds, and how many sale pages a process answers.
Never leaves a slow round out: that would flatter. Streams that break or purchases refused end it. By the command.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from loadtest.bench.harness import processes
from loadtest.bench.harness.fixtures import UNITS, Goods, make_goods
from loadtest.bench.harness.servers import GATE, Side, Workspace, serving
from loadtest.bench.load.loader import HOST, Load, Loader
from loadtest.bench.load.pace import Pace
from loadtest.bench.load.payloads import BODY, fresh_wishes
from loadtest.bench.load.wire import LoadFailed
from loadtest.bench.streams.readers import SPARE_HANDLES, Counts, raise_handle_limit, reading
from shop.buyers import issue_buyer
from shop.models import Sale
from shop.sales.catalogue import prime_sale
from shop.staff import sale_control

ALONE, BESIDE = "alone", "alongside"
PAGE_READERS = {"kept": "", "rendered": "Cookie: ticket=0-aaaaaaaaaaaaaaaaaaaaaa\r\n"}
# The line moves while it is measured, so that every stream has news: units come in and go to the first who wait.
RESTOCK_SECONDS = 0.25
# Those at the front get the units, and their streams end: so many more wait than are followed.
SPARE_WAITING = 600
PAGE_CONNECTIONS = 64
PAGES_PER_SECOND = 40_000  # more than any server here gives: so many requests are made ready
WARM_UP_SECONDS = 1.0
# Of the streams; more may not end while they are measured.
MAX_ENDED = 0.05


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. seconds: of each round; pairs: one round of each side; asks in purchases a second."""

    pairs: int
    seconds: float
    streams: int = 2_000
    asks_per_second: int = 300
    connections: int = 16


FULL = Plan(pairs=10, seconds=5.0)
QUICK = Plan(pairs=1, seconds=2.0)


@dataclass(frozen=True, kw_only=True)
class StreamRound:
    """One round of one side. asked: purchases; messages: of all streams; busy: the web process' share of its core."""

    side: str
    asked_per_second: float
    p50_ms: float
    p99_ms: float
    busy: float
    messages_per_second: float


@dataclass(frozen=True, kw_only=True)
class Results:
    """Every round in pairs (alone, alongside), and the sale page's rates by reader."""

    pairs: list[tuple[StreamRound, StreamRound]]
    pages: dict[str, float]


def measure_all(plan: Plan, *, place: Workspace, say: Callable[[str], None]) -> Results:
    """Run web and a settler, measure in turns, and return what was found. Raises LoadFailed."""
    raise_handle_limit(2 * plan.streams + SPARE_HANDLES)
    goods = make_waiting_goods("streams")
    with ExitStack() as stack:
        settler = place.child("settler", ["manage.py", "run_worker", "settler"], redis_url=settings.REDIS_URL)
        stack.callback(settler.stop)
        settler.start()
        web = stack.enter_context(serving("web", GATE, place=place, redis_url=settings.REDIS_URL, slug=goods.slug))
        stack.enter_context(processes.bound(to=bind_alone(web)))
        streams = waiting_streams(web.port, goods.slug, count=plan.streams + SPARE_WAITING)[SPARE_WAITING:]
        say(f"{len(streams):,} buyers wait in line")
        pairs = [pair(number, web, goods, streams, plan=plan, say=say) for number in range(plan.pairs)]
        pages = {name: page_rate(web, goods, name, seconds=plan.seconds) for name in PAGE_READERS}
    return Results(pairs=pairs, pages=pages)


def make_waiting_goods(sku: str) -> Goods:
    """Make a sale of one unit with room for everybody who is going to wait."""
    goods = make_goods(sku)
    sale_control.adjust(goods.slug, units=1 - UNITS, actor="benchmark", reason="few, so that a line forms")
    Sale.objects.filter(pk=goods.sale_id).update(room=UNITS)
    prime_sale(goods.slug)
    return goods


def bind_alone(web: Side) -> set[int]:
    """Give the web process a core of its own, if there are two; return the others."""
    cores = processes.cores()
    if len(cores) < 2:
        return set(cores)
    processes.bind(web.child, to={cores[0]})
    return set(cores[1:])


def waiting_streams(port: int, slug: str, *, count: int) -> list[tuple[str, str]]:
    """Let `count` buyers ask; return the path of each one's stream, and the token that may read it, by their place."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    found = []
    for _ in range(count):
        _, token = issue_buyer()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", f"/api/v1/sales/{slug}/requests", body=BODY, headers=headers)
        answer = json.loads(connection.getresponse().read())
        if "events_url" not in answer:
            raise LoadFailed(f"a buyer was not let into the line: {answer}")
        found.append((answer["events_url"], token))
    connection.close()
    return found


def pair(
    number: int,
    web: Side,
    goods: Goods,
    streams: list[tuple[str, str]],
    *,
    plan: Plan,
    say: Callable[[str], None],
) -> tuple[StreamRound, StreamRound]:
    """Measure one round of each side, right after each other; which is first changes from pair to pair."""
    found: dict[str, StreamRound] = {}
    for side in (ALONE, BESIDE) if number % 2 == 0 else (BESIDE, ALONE):
        with ExitStack() as stack:
            counts = stack.enter_context(reading(web.port, streams)) if side == BESIDE else None
            stack.enter_context(moving(goods))
            found[side] = one_round(side, web, goods, counts=counts, plan=plan)
        each = found[side]
        say(
            f"{side:>6}: {each.asked_per_second:,.0f} purchases/s, p50 {each.p50_ms:.1f} ms, "
            f"p99 {each.p99_ms:.1f} ms, web busy {each.busy:.0%}, {each.messages_per_second:,.0f} messages/s"
        )
    return found[ALONE], found[BESIDE]


def one_round(side: str, web: Side, goods: Goods, *, counts: Counts | None, plan: Plan) -> StreamRound:
    """Ask at an even pace for one round. Raises LoadFailed when it does not count."""
    began, used = time.monotonic(), processes.cpu_seconds(web.child)
    messages = counts.messages.value if counts else 0
    load = ask(web.port, goods.slug, plan=plan)
    passed = time.monotonic() - began
    if counts and counts.closed.value > MAX_ENDED * plan.streams:
        raise LoadFailed(f"{counts.closed.value} streams ended while they were measured")
    return StreamRound(
        side=side,
        asked_per_second=load.per_second,
        p50_ms=load.wait_ms(0.5),
        p99_ms=load.wait_ms(0.99),
        busy=(processes.cpu_seconds(web.child) - used) / passed,
        messages_per_second=(counts.messages.value - messages) / passed if counts else 0.0,
    )


def ask(port: int, slug: str, *, plan: Plan) -> Load:
    """Ask for units at an even pace; any answer but 202 fails the run."""
    count = int(plan.asks_per_second * (plan.seconds + WARM_UP_SECONDS) * 1.2) + 100
    loader = Loader(port, connections=plan.connections, may_send=Pace(plan.asks_per_second).may_send)
    wishes = fresh_wishes(slug, port=port, count=count)
    load = loader.run(wishes, seconds=plan.seconds, warm_up_seconds=WARM_UP_SECONDS)
    if set(load.statuses) != {"202"}:
        raise LoadFailed(f"purchases were answered {dict(load.statuses)}")
    return load


@contextmanager
def moving(goods: Goods) -> Iterator[None]:
    """Let a unit come in again and again for the length of a `with` block."""
    ends = threading.Event()

    def restock() -> None:
        while not ends.wait(RESTOCK_SECONDS):
            sale_control.restock(goods.slug, units=1, actor="benchmark", reason="the line moves")
        connection.close()

    thread = threading.Thread(target=restock, name="restock")
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def page_rate(web: Side, goods: Goods, reader: str, *, seconds: float) -> float:
    """Return how many sale pages a second are answered to a kind of reader."""
    request = (
        f"GET /sales/{goods.slug}/ HTTP/1.1\r\nHost: {HOST}:{web.port}\r\nAccept-Language: en\r\n"
        f"{PAGE_READERS[reader]}\r\n"
    ).encode()
    requests = [request] * int(PAGES_PER_SECOND * (seconds + WARM_UP_SECONDS))
    load = Loader(web.port, connections=PAGE_CONNECTIONS).run(
        requests, seconds=seconds, warm_up_seconds=WARM_UP_SECONDS
    )
    if set(load.statuses) != {"200"}:
        raise LoadFailed(f"pages were answered {dict(load.statuses)}")
    return load.per_second
