"""Puts a run of the streams' benchmark together: figures with their floors, method, chart. Decides nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from loadtest.bench.harness import machine
from loadtest.bench.harness.chart import Panel, chart
from loadtest.bench.harness.command import CHECKOUT
from loadtest.bench.harness.figures import Figure, ratio
from loadtest.bench.harness.method import filled
from loadtest.bench.harness.report import Report
from loadtest.bench.streams.run import PAGE_CONNECTIONS, RESTOCK_SECONDS, Plan, Results, StreamRound

MAX_SLOWER = 1.5
MIN_PAGES = 5_000
# Of the pace that is meant; below it the waits are those of fewer purchases.
KEPT = 0.95
# Each stream must have news at least every ten seconds, or nothing was measured.
MIN_NEWS = 0.1
PACKAGES = ("django", "redis", "hiredis", "uvicorn", "httptools", "uvloop")
METHOD = (
    "One web process on one core; Valkey with every write on disk, PostgreSQL, a settler, the loader and the readers "
    "share the others.",
    "{streams:,} buyers wait in one line and follow it, one stream each. {asks_per_second} purchases a second are "
    "asked in the same sale at an even pace over {connections} connections; every {restock:g} s a unit comes in, so "
    "all places move.",
    "{pairs} pairs of rounds of {seconds:g} s, one without streams and one with them, right after each other, now the "
    "one first and now the other. Of each pair the ratio is taken; the figure is the median of the ratios, so that "
    "what disturbs the machine for longer than a pair disturbs both sides, and a disturbance of one round is left out.",
    "Every round counts. Purchases that are not answered 202, or more than 5 % of the streams ending in a round, end "
    "the run as failed; a pace that is not kept, or streams without news, fail it at the end.",
    "What bounds it: in the rounds with streams the readers take their share of the cores on which the stores, the "
    "settler and the loader run. They are niced, but on two cores a part of what is measured is theirs and not the "
    "web process'. So the ratio is an upper bound of what streams cost a purchase; how busy the web process is stands "
    "alongside it and owes nothing to the readers.",
    "Sale page: the same page to a reader without cookies over {pages} connections, as fast as one process answers; "
    "alongside it the page rendered by Django for a reader who has a ticket.",
)


def figures_of(results: Results, *, streams: int, asks: int) -> list[Figure]:
    """Return every figure with its bound."""
    alone, alongside = ([pair[side] for pair in results.pairs] for side in (0, 1))
    named = f"{streams:,} streams open"
    return [
        Figure(name="purchase p50, no stream open", value=middle(alone, p50), unit="ms"),
        Figure(name=f"purchase p50, {named}", value=middle(alongside, p50), unit="ms"),
        Figure(name="purchase p99, no stream open", value=middle(alone, p99), unit="ms"),
        Figure(name=f"purchase p99, {named}", value=middle(alongside, p99), unit="ms"),
        Figure(name="p99 alongside streams ÷ without, median of pairs", value=slower(results), at_most=MAX_SLOWER),
        Figure(
            name=f"purchases asked alongside them, of {asks} meant",
            value=middle(alongside, asked),
            unit="/s",
            at_least=KEPT * asks,
        ),
        Figure(name="web process busy, no stream open", value=middle(alone, busy), unit="of a core"),
        Figure(name=f"web process busy, {named}", value=middle(alongside, busy), unit="of a core"),
        Figure(name="messages to all streams", value=middle(alongside, news), unit="/s", at_least=MIN_NEWS * streams),
        Figure(
            name="sale page, one core, from memory", value=results.pages["kept"], unit="pages/s", at_least=MIN_PAGES
        ),
        Figure(name="sale page, one core, rendered by Django", value=results.pages["rendered"], unit="pages/s"),
    ]


def slower(results: Results) -> float:
    """Return how many times as long purchases waited alongside streams: the median over the pairs."""
    return statistics.median(ratio(alongside.p99_ms, alone.p99_ms) for alone, alongside in results.pairs)


def middle(rounds: Sequence[StreamRound], value: Callable[[StreamRound], float]) -> float:
    """Return the median of a value over rounds."""
    return statistics.median(map(value, rounds))


def asked(each: StreamRound) -> float:
    return each.asked_per_second


def p50(each: StreamRound) -> float:
    return each.p50_ms


def p99(each: StreamRound) -> float:
    return each.p99_ms


def busy(each: StreamRound) -> float:
    return each.busy


def news(each: StreamRound) -> float:
    return each.messages_per_second


def report_of(results: Results, *, plan: Plan, hardware: Mapping[str, str], quick: bool, picture: str) -> Report:
    """Return the whole report. hardware: as it was before the run; picture: the chart's file name."""
    return Report(
        title="Live streams alongside purchases, and the sale page: measured",
        command="make bench-streams",
        date=machine.now(),
        revision=machine.revision(CHECKOUT),
        quick=quick,
        figures=figures_of(results, streams=plan.streams, asks=plan.asks_per_second),
        facts=machine.facts(hardware, packages=PACKAGES),
        method=filled(METHOD, plan, restock=RESTOCK_SECONDS, pages=PAGE_CONNECTIONS),
        samples=[
            {
                "pair": number,
                "side": each.side,
                "purchases_per_second": round(each.asked_per_second, 1),
                "p50_ms": round(each.p50_ms, 2),
                "p99_ms": round(each.p99_ms, 2),
                "web_busy": round(each.busy, 3),
                "messages_per_second": round(each.messages_per_second, 1),
            }
            for number, rounds in enumerate(results.pairs, 1)
            for each in rounds
        ],
        picture=(picture, "Bars of purchases alongside streams and without, and of the sale page's rate"),
    )


def picture_of(results: Results) -> str:
    """Return the chart: both sides of each measurement."""
    alone, alongside = ([pair[side] for pair in results.pairs] for side in (0, 1))
    drawn = [
        Panel(
            title=title,
            values={"alongside the streams": middle(alongside, value), "no stream open": middle(alone, value)},
            ours=("alongside the streams",),
        )
        for title, value in (
            ("Purchase, p99 in ms (shorter is better)", p99),
            ("Purchase, p50 in ms (shorter is better)", p50),
            ("Web process, share of its core (shorter is better)", busy),
        )
    ]
    drawn.append(
        Panel(
            title="Sale page, answers a second on one core (longer is better)",
            values={"from memory": results.pages["kept"], "rendered by Django": results.pages["rendered"]},
            ours=("from memory",),
        )
    )
    return chart(drawn, description="Both sides of each measurement; the same numbers stand in the table")
