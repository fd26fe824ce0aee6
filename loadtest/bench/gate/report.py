"""What the shop promises of its speed: every figure of a run with its floor and its aim. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loadtest.bench.harness.report import Figure, middle_ratio, ratio

if TYPE_CHECKING:
    from loadtest.bench.gate.admission import Turn
    from loadtest.bench.gate.end_to_end import Road
    from loadtest.bench.gate.settlement import Emptied


def median(turns: Sequence[Turn], *, side: str, of: str = "per_second") -> float:
    """Return the middle of what has this name in the turns of `side`: its rate, if it is not said."""
    return float(statistics.median(getattr(turn, of) for turn in turns if turn.side == side))


def ratio_of_rounds(turns: Sequence[Turn], above: str, below: str) -> float:
    """Return the middle, over the rounds, of the rate of one side ÷ that of the other: a slow minute falls on both."""
    return middle_ratio(*([turn.per_second for turn in turns if turn.side == side] for side in (above, below)))


def per_cpu_second(turns: Sequence[Turn], *sides: str) -> list[float]:
    """Return the middle answers per second of CPU of each side: what a neighbour on the machine disturbs least."""
    return [
        statistics.median(ratio(turn.per_second, turn.busy) for turn in turns if turn.side == side) for side in sides
    ]


LONE, WITH_LIMITS, WITHOUT_LIMITS = "lone ask", "with limits", "without limits"
# The gate that waits until a replica has each batch as well, under load and with one connection.
REPLICATED, LONE_REPLICATED = "replicated", "lone ask, replicated"
# What is measured, its name on the page, and its unit.
ADMISSION_SIDES = (
    ("no-op", "no-op ASGI app on granian, one core", "requests/s"),
    ("bare", "bare uvloop and httptools, one core", "requests/s"),
    ("gate", "gate, one core, appendfsync always", "admissions/s"),
    ("gate everysec", "gate, one core, appendfsync everysec", "admissions/s"),
    ("unmarked", "gate without headers for browsers, ids and metrics, one core", "admissions/s"),
    (REPLICATED, "gate, one core, which waits for one replica", "admissions/s"),
    ("plain tickets", "gate, one core, tickets that only the shop can check", "admissions/s"),
    ("sold out", "sold-out answer, one core", "answers/s"),
    ("limited", "refusal by a limit of its address, one core", "answers/s"),
    ("sale page", "sale page from memory, one core", "pages/s"),
    ("two gates", "two web processes on the same core, appendfsync always", "admissions/s"),
    ("plain view", "plain Django view over WSGI, one core", "admissions/s"),
)
# Limits by address and network may cost three of a hundred admissions.
MIN_OF_UNLIMITED = 0.97
# Of the answers: what a store that is too slow for a moment may cost.
MAX_UNAVAILABLE = 0.001
# What a queued request took before it had the version of its terms and its ordinal, what these may take, and what its
# network may: in its record, and the units that the network was let in for, when each buyer has one of their own.
MAX_BYTES = 265 + 16 + 55
# Above ÷ below, floor, aim.
ADMISSION_RATIOS = (
    ("gate", "no-op", 0.85, 1.1),
    ("gate", "bare", 0.18, 0.25),
    ("sold out", "no-op", 1.5, None),
    ("gate", "plain view", 30.0, None),
    # Headers, ids and metrics may cost two of a hundred; one turn differs from the next by as much: see profile.py.
    ("gate", "unmarked", 0.95, 0.98),
    ("gate", "plain tickets", 0.8, 0.9),
    ("sale page", "no-op", 1.2, None),
)


def admission_figures(turns: Sequence[Turn]) -> list[Figure]:
    """Return the figures of the servers on a core each, and the ratios that must hold.

    Ratios are of answers per second of the server's CPU: the loader and Redis share a core, and a server that is
    faster than both of them would be measured by theirs.
    """
    figures = []
    for side, name, unit in ADMISSION_SIDES:
        cpu_us = 1e6 / per_cpu_second(turns, side)[0]
        figures += [
            Figure(name, value=median(turns, side=side), unit=unit),
            Figure(f"{side}: server CPU for one answer", value=cpu_us, unit="µs"),
        ]
    for above, below, floor, aim in ADMISSION_RATIOS:
        value = ratio(*per_cpu_second(turns, above, below))
        figures.append(Figure(f"{above} ÷ {below}", value=value, at_least=floor, aim=aim))
    two = ratio(*per_cpu_second(turns, "gate", "two gates"))
    everysec = ratio(median(turns, side="gate"), median(turns, side="gate everysec"))
    lone, replicated = (median(turns, side=side, of="wait_p50_ms") for side in (LONE, LONE_REPLICATED))
    limited = ratio(*per_cpu_second(turns, "sold out", "limited"))
    of_unlimited = ratio_of_rounds(turns, WITH_LIMITS, WITHOUT_LIMITS)
    return [
        *figures,
        Figure("refusal by a limit ÷ sold-out answer, server CPU for one", value=limited, at_most=1.2),
        Figure("admissions a second with limits ÷ without", value=of_unlimited, at_least=MIN_OF_UNLIMITED),
        Figure("two gates ÷ gate, server CPU for one answer", value=two, at_most=1.1),
        Figure("a lone ask, appendfsync always, median", value=lone, unit="ms", at_most=1.5),
        Figure("a lone ask that waits for one replica, median", value=replicated, unit="ms"),
        Figure("gate that waits for one replica ÷ gate", value=ratio_of_rounds(turns, REPLICATED, "gate")),
        Figure("gate ÷ no-op, answers a second", value=ratio_of_rounds(turns, "gate", "no-op")),
        # An idle no-op was held up by something else on the machine.
        Figure("no-op server's share of its core (disturbed below 0.9)", value=median(turns, side="no-op", of="busy")),
        Figure("share of the machine its host took, worst turn", value=max(turn.stolen for turn in turns)),
        Figure("share of 503, worst turn", value=max(turn.unavailable for turn in turns), at_most=MAX_UNAVAILABLE),
        Figure("gate, always ÷ everysec", value=everysec, at_least=0.7),
    ]


def settlement_figures(rounds: Mapping[int, Sequence[Emptied]]) -> list[Figure]:
    """Return the figures of settlement alone. rounds: by batch."""
    batched, single = (statistics.median(each.per_second for each in rounds[batch]) for batch in (500, 1))
    size, cpu_us = (statistics.median(getattr(each, name) for each in rounds[500]) for name in ("bytes_each", "cpu_us"))
    stolen = max(each.stolen for found in rounds.values() for each in found)
    return [
        Figure("settlement alone, batch 500", value=batched, unit="orders/s", at_least=10_000),
        Figure("settlement alone, batch 500: CPU of the settler", value=cpu_us, unit="µs"),
        Figure("settlement alone: share of the machine its host took, worst round", value=stolen),
        Figure("settlement alone, batch 1", value=single, unit="orders/s"),
        Figure("batch 500 ÷ batch 1", value=ratio(batched, single), at_least=40),
        Figure("Redis memory of a queued request", value=size, unit="bytes", at_most=MAX_BYTES),
    ]


def road_figures(road: Road) -> list[Figure]:
    """Return the figures of the whole road."""
    name, decided = f"whole road, {road.seconds:g} s: ask to durable decision", road.decided_per_second
    return [
        Figure(name, value=decided, unit="decisions/s", at_least=6_000, aim=10_000),
        Figure("whole road: CPU of web, settler and stores for a decision", value=road.shop_cpu_us, unit="µs"),
        Figure("whole road: share of the machine its host took", value=road.stolen),
        Figure("whole road: wait for the 202, median", value=road.wait_p50_ms, unit="ms"),
        Figure("whole road: wait for the 202, p99", value=road.wait_p99_ms, unit="ms"),
        Figure("whole road: share of 503", value=road.unavailable, at_most=MAX_UNAVAILABLE),
        Figure("web process after the flood", value=road.web_mib, unit="MiB", at_most=120),
        Figure("asks that it had let in by then", value=road.let_in, unit="asks"),
        Figure("settler after the flood", value=road.settler_mib, unit="MiB", at_most=150),
    ]
