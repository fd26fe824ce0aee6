"""`python -m loadtest.benchmarks.streams`: purchases beside 2,000 live streams and without, and the sale page's rate.
Exit code 1 below a floor or when a measurement failed, 130 when interrupted. Never leaves a process or data behind.
Called by hand.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.benchmarks import processes
from loadtest.benchmarks.command import CHECKOUT, Measured, environment_of, run_command, say
from loadtest.benchmarks.loader import HOST, Load, Loader, LoadFailed
from loadtest.benchmarks.stream_readers import SPARE_HANDLES, raise_handle_limit, reading
from workers.embedded import start_both

if TYPE_CHECKING:
    from loadtest.benchmarks.goods import Goods
    from loadtest.benchmarks.report import Report
    from loadtest.benchmarks.sides import Place, Side

STREAMS = 2_000
ASKS_PER_SECOND = 300
CONNECTIONS = 16
PAGE_CONNECTIONS = 64
PAGES_PER_SECOND = 40_000  # more than any server here gives: so many requests are made ready
# The line moves while it is measured, so that every stream has news: units come in and go to the first who wait.
RESTOCK_SECONDS = 0.25
RESTOCK_UNITS = 5
MOST_SLOWER = 1.5
LEAST_PAGES = 5_000
PACKAGES = ("django", "redis", "hiredis", "granian", "uvloop")
METHOD = (
    "One web process on one core; Valkey, PostgreSQL, a settler, the loader and the readers share the others.",
    "{streams:,} buyers wait in one line and follow it, one stream each. {asks} purchases a second are asked in the "
    "same sale over {connections} connections; every quarter of a second {units} units come in, so all places move.",
    "{rounds} rounds of {seconds:g} s, without streams and with them in turns; of each the least disturbed round "
    "counts, and all stand below.",
    "Sale page: the same reader without cookies over {pages} connections, as fast as it goes; beside it the same page "
    "rendered by Django for a reader who has a ticket.",
)


def main() -> int:
    """Run the command."""
    return run_command(
        _measure,
        name="streams",
        purpose="Measure live streams beside purchases, and the sale page; fail below a floor.",
    )


def _measure(folder: Path, quick: bool) -> Measured:
    raise_handle_limit(2 * STREAMS + SPARE_HANDLES)
    with start_both(folder, environment={}) as servers:
        os.environ |= servers.environment | environment_of(servers.environment["REDIS_URL"])
        _set_up_django()
        from loadtest.benchmarks.sides import Place

        place = Place(checkout=CHECKOUT, environment=dict(os.environ), folder=folder)
        return measure(place, quick=quick), {}


def _set_up_django() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def measure(place: Place, *, quick: bool) -> Report:
    """Run web and a settler, measure in turns, and return the report."""
    from django.conf import settings

    from loadtest.benchmarks.sides import GATE, serving

    rounds, seconds = (1, 2.0) if quick else (6, 4.0)
    goods = make_waiting_goods("streams")
    with ExitStack() as stack:
        settler = place.child("settler", ["manage.py", "run_worker", "settler"], redis_url=settings.REDIS_URL)
        stack.callback(settler.stop)
        settler.start()
        web = stack.enter_context(serving("web", GATE, place=place, redis_url=settings.REDIS_URL, slug=goods.slug))
        free = bind_alone(web)
        stack.enter_context(processes.bound(to=free))
        waits = purchases_in_turns(web, goods, rounds=rounds, seconds=seconds)
        pages = {name: page_rate(web, goods, name, seconds=seconds) for name in PAGE_READERS}
    return report(waits, pages, quick=quick, rounds=rounds, seconds=seconds)


def make_waiting_goods(sku: str) -> Goods:
    """Make a sale of one unit with room for everybody who is going to wait."""
    from loadtest.benchmarks.goods import UNITS, make_goods
    from shop import sale_control
    from shop.catalogue import prime_sale
    from shop.models import Sale

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


def purchases_in_turns(web: Side, goods: Goods, *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the p99 of purchases in ms, without streams and beside them, a figure a round."""
    streams = waiting_streams(web.port, goods.slug, count=STREAMS)
    say(f"{len(streams):,} buyers wait in line")
    waits: dict[str, list[float]] = {"alone": [], "beside": []}
    for number in range(rounds):
        for side in ("alone", "beside") if number % 2 == 0 else ("beside", "alone"):
            with ExitStack() as stack:
                counts = stack.enter_context(reading(web.port, streams)) if side == "beside" else None
                stack.enter_context(moving(goods))
                before = counts.messages.value if counts else 0
                load = ask(web.port, goods.slug, seconds=seconds)
                messages = counts.messages.value - before if counts else 0
                if counts and counts.closed.value > len(streams) // 2:
                    raise LoadFailed(f"{counts.closed.value} streams ended while they were measured")
            waits[side].append(load.wait_ms(0.99))
            say(
                f"{side:>6}: {load.per_second:,.0f} purchases/s, p99 {load.wait_ms(0.99):.1f} ms, {messages:,} messages"
            )
    return waits


def waiting_streams(port: int, slug: str, *, count: int) -> list[tuple[str, str]]:
    """Let `count` buyers ask; return the path of each one's stream, and the token that may read it."""
    from loadtest.benchmarks.wishes import BODY
    from shop.buyers import issue_buyer

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


@contextmanager
def moving(goods: Goods) -> Iterator[None]:
    """Let units come in again and again for the length of a `with` block."""
    from django.db import connection

    from shop import sale_control

    ends = threading.Event()

    def restock() -> None:
        while not ends.wait(RESTOCK_SECONDS):
            sale_control.restock(goods.slug, units=RESTOCK_UNITS, actor="benchmark", reason="the line moves")
        connection.close()

    thread = threading.Thread(target=restock, name="restock")
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def ask(port: int, slug: str, *, seconds: float) -> Load:
    """Ask for units at an even pace; any answer but 202 fails the run."""
    from loadtest.benchmarks.wishes import fresh_wishes

    warm_up = 1.0
    pace = Pace(ASKS_PER_SECOND)
    wishes = fresh_wishes(slug, port=port, count=int(ASKS_PER_SECOND * (seconds + warm_up) * 1.2) + 100)
    load = Loader(port, connections=CONNECTIONS, may_send=pace.may_send).run(
        wishes, seconds=seconds, warm_up_seconds=warm_up
    )
    if set(load.statuses) != {"202"}:
        raise LoadFailed(f"purchases were answered {dict(load.statuses)}")
    return load


class Pace:
    """Lets `per_second` requests go, evenly."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._began = time.monotonic()
        self._sent = 0

    def may_send(self, now: float) -> bool:
        if self._sent > (now - self._began) * self._per_second:
            return False
        self._sent += 1
        return True


PAGE_READERS = {"kept": "", "rendered": "Cookie: ticket=0-aaaaaaaaaaaaaaaaaaaaaa\r\n"}


def page_rate(web: Side, goods: Goods, reader: str, *, seconds: float) -> float:
    """Return how many sale pages a second are answered to a kind of reader."""
    request = (
        f"GET /sales/{goods.slug}/ HTTP/1.1\r\nHost: {HOST}:{web.port}\r\nAccept-Language: en\r\n"
        f"{PAGE_READERS[reader]}\r\n"
    ).encode()
    requests = [request] * int(PAGES_PER_SECOND * (seconds + 1))
    load = Loader(web.port, connections=PAGE_CONNECTIONS).run(requests, seconds=seconds, warm_up_seconds=1.0)
    if set(load.statuses) != {"200"}:
        raise LoadFailed(f"pages were answered {dict(load.statuses)}")
    say(f"sale page, {reader}: {load.per_second:,.0f}/s")
    return load.per_second


def report(
    waits: dict[str, list[float]], pages: dict[str, float], *, quick: bool, rounds: int, seconds: float
) -> Report:
    """Return the finished run with its floors."""
    from inventory.redis import connect
    from loadtest.benchmarks import machine
    from loadtest.benchmarks.figures import Figure, ratio
    from loadtest.benchmarks.report import Report

    alone, beside = (min(waits[side]) for side in ("alone", "beside"))
    figures = [
        Figure(name="purchase p99, no stream open", value=alone, unit="ms"),
        Figure(name=f"purchase p99, {STREAMS:,} streams open", value=beside, unit="ms"),
        Figure(name="beside streams ÷ without", value=ratio(beside, alone), at_most=MOST_SLOWER),
        Figure(name="sale page, one core, from memory", value=pages["kept"], unit="pages/s", at_least=LEAST_PAGES),
        Figure(name="sale page, one core, rendered by Django", value=pages["rendered"], unit="pages/s"),
    ]
    return Report(
        title="Live streams beside purchases, and the sale page: measured",
        command="python -m loadtest.benchmarks.streams",
        date=machine.now(),
        revision=machine.revision(CHECKOUT),
        quick=quick,
        figures=figures,
        facts={
            "Hardware": machine.hardware(),
            "Versions": machine.versions(connect(), packages=PACKAGES) | machine.postgres_version(),
        },
        method=method_of(rounds, seconds),
        samples=[{"side": side, "p99_ms": round(wait, 2)} for side, each in waits.items() for wait in each],
    )


def method_of(rounds: int, seconds: float) -> Sequence[str]:
    """Return the method in sentences, with the numbers of this run."""
    return [
        line.format(
            streams=STREAMS, asks=ASKS_PER_SECOND, connections=CONNECTIONS, units=RESTOCK_UNITS, rounds=rounds,
            seconds=seconds, pages=PAGE_CONNECTIONS,
        )
        for line in METHOD
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
