"""Measures purchases alongside open streams, mails that are sent, and retention, and alone, in pairs of rounds; and the
rate of the sale page.
Never leaves a slow round out: that would flatter. Streams that break or purchases refused end it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import repeat

from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, say, say_fields
from loadtest.bench.harness.fixtures import UNITS, Fixture, make_fixture
from loadtest.bench.harness.report import quantile
from loadtest.bench.harness.servers import WebServer, kept_connection, post_json, running_shop
from loadtest.bench.harness.timing import again_and_again
from loadtest.bench.load.arrivals import allow_connections
from loadtest.bench.load.loader import Load, Loader, LoadWindow, ask_evenly, asks_needed
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import address, fresh_payloads, get
from loadtest.bench.streams.company import cleaning, mailing, write_past_buyers
from loadtest.bench.streams.plan import FULL, METHOD, PAGE_CONNECTIONS, QUICK, RESTOCK_SECONDS, Plan
from loadtest.bench.streams.readers import SPARE_HANDLES, Counts, reading
from loadtest.bench.streams.report import PurchaseRound, figures_of, picture_of, samples_of
from shop.buyers import issue_buyer
from shop.staff import sale_control

Company = Callable[[], AbstractContextManager[Counts | None]]
ALONE, BESIDE = "alone", "alongside"
PAGE_READERS = {"kept": "", "rendered": "Cookie: ticket=0-aaaaaaaaaaaaaaaaaaaaaa\r\n"}
# Those at the front get the units, and their streams end: so many more wait than are followed.
SPARE_WAITING = 600
WARM_UP_SECONDS = 1.0
# Of the streams; more may not end while they are measured.
MAX_ENDED = 0.05


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Run web and a settler, measure in turns, and return what was found. Raises LoadFailed."""
    plan = run.plan
    allow_connections(wanted=2 * plan.streams + SPARE_HANDLES)
    fixture = make_waiting_fixture("streams")
    with running_shop(fixture.slug, place=run.place, stores=run.stores.pairs[0]) as shop:
        web = shop.web
        with machine.bound(to=bind_alone(web)):
            streams = waiting_streams(web.port, fixture.slug, count=plan.streams + SPARE_WAITING)[SPARE_WAITING:]
            say(f"{len(streams):,} buyers wait in line")
            followed = partial(reading, web.port, streams)
            pairs = [pair(number, web, fixture, followed, plan=plan) for number in range(plan.pairs)]
            queue = partial(mailing, run.place, queued=plan.mails)
            mailed = [pair(number, web, fixture, queue, plan=plan) for number in range(plan.mail_pairs)]
            write_past_buyers(rounds=plan.cleaning_pairs, buyers=plan.old_rows)
            aged = partial(cleaning, run.place, rows=plan.old_rows)
            cleaned = [pair(number, web, fixture, aged, plan=plan) for number in range(plan.cleaning_pairs)]
            pages = {name: page_rate(web, fixture, name, seconds=plan.seconds) for name in PAGE_READERS}
    counts = {"streams": plan.streams, "asks": plan.asks_per_second, "mails": plan.mails}
    rounds = {"streams": pairs, "mails": mailed, "retention": cleaned}
    return Findings(
        figures=figures_of(pairs, mailed=mailed, cleaned=cleaned, pages=pages, **counts),
        samples=[row for of, each in rounds.items() for row in samples_of(each, of=of)],
        picture=picture_of(pairs, pages=pages),
    )


def make_waiting_fixture(sku: str) -> Fixture:
    """Make a sale of one unit with room for everybody who is going to wait, and for each network."""
    return make_fixture(sku, units=1, line_capacity=UNITS, per_network_limit=UNITS)


def bind_alone(web: WebServer) -> set[int]:
    """Give the web process a core of its own, if there are two; return the others."""
    cores = machine.cores()
    if len(cores) < 2:
        return set(cores)
    machine.bind(web.child, to={cores[0]})
    return set(cores[1:])


def waiting_streams(port: int, slug: str, *, count: int) -> list[tuple[str, str]]:
    """Let `count` buyers ask; return the path of each one's stream, and the token that may read it, by their place."""
    path, found = f"/api/v1/sales/{slug}/requests", []
    with kept_connection(port) as connection:
        for number in range(count):
            _, token = issue_buyer()
            headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": address(number)}
            _, told = post_json(connection, path, headers=headers, body={"quantity": 1})
            if "events_url" not in told:
                raise LoadFailed(f"a buyer was not let into the line: {told}")
            found.append((told["events_url"], token))
    return found


def pair(
    number: int, web: WebServer, fixture: Fixture, company: Company, *, plan: Plan
) -> tuple[PurchaseRound, PurchaseRound]:
    """Measure one round of each side, right after each other; which is first changes from pair to pair.

    company: what goes on in the rounds alongside it; a block of its own in each.
    """
    found: dict[str, PurchaseRound] = {}
    for side in (ALONE, BESIDE) if number % 2 == 0 else (BESIDE, ALONE):
        with ExitStack() as stack:
            counts = stack.enter_context(company()) if side == BESIDE else None
            stack.enter_context(moving(fixture))
            found[side] = one_round(side, web, fixture, counts=counts, plan=plan)
        say_fields(found[side])
    return found[ALONE], found[BESIDE]


def one_round(side: str, web: WebServer, fixture: Fixture, *, counts: Counts | None, plan: Plan) -> PurchaseRound:
    """Ask at an even pace for one round. Raises LoadFailed when it does not count."""
    began, used = time.monotonic(), machine.cpu_seconds(web.child)
    messages = counts.messages.value if counts else 0
    load = ask(web.port, fixture.slug, plan=plan)
    passed = time.monotonic() - began
    if counts and counts.closed.value > MAX_ENDED * plan.streams:
        raise LoadFailed(f"{counts.closed.value} streams ended while they were measured")
    return PurchaseRound(
        side=side,
        asked_per_second=load.per_second,
        p50_ms=quantile(load.waits_ms, 0.5),
        p99_ms=quantile(load.waits_ms, 0.99),
        busy=(machine.cpu_seconds(web.child) - used) / passed,
        messages_per_second=(counts.messages.value - messages) / passed if counts else 0.0,
    )


def ask(port: int, slug: str, *, plan: Plan) -> Load:
    """Ask for units at an even pace; any answer but 202 fails the run."""
    window = LoadWindow(seconds=plan.seconds, warm_up_seconds=WARM_UP_SECONDS, connections=plan.connections)
    count = asks_needed(per_second=plan.asks_per_second, window=window)
    payloads = fresh_payloads(slug, port=port, count=count)
    load = ask_evenly(port, payloads, per_second=plan.asks_per_second, window=window)
    load.must_be("202", of="purchases: the shop")
    return load


def moving(fixture: Fixture) -> AbstractContextManager[None]:
    """Let a unit come in again and again for the length of a `with` block."""
    restock = partial(sale_control.restock, fixture.slug, units=1, actor="benchmark", reason="the line moves")
    return again_and_again(restock, every_seconds=RESTOCK_SECONDS)


def page_rate(web: WebServer, fixture: Fixture, reader: str, *, seconds: float) -> float:
    """Return how many sale pages a second are answered to a kind of reader."""
    headers = f"Accept-Language: en\r\n{PAGE_READERS[reader]}"
    request = get(f"/sales/{fixture.slug}/", port=web.port, headers=headers)
    window = LoadWindow(seconds=seconds, warm_up_seconds=WARM_UP_SECONDS, connections=PAGE_CONNECTIONS)
    load = Loader(web.port, window).run(repeat(request))
    load.must_be("200", of="pages: the shop")
    return load.per_second


BENCHMARK = Benchmark(
    title="Live streams and mails alongside purchases, and the sale page: measured",
    packages=("django", "redis", "hiredis", "uvicorn", "httptools", "uvloop"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
    picture="Bars of purchases alongside streams and without, and of the sale page's rate",
)
