"""What the shop promises of its speed: every figure of a run with its floor and its aim. Pure.
Called by the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loadtest.benchmarks.figures import Figure, ratio

if TYPE_CHECKING:
    from loadtest.benchmarks.admission_rounds import Turn
    from loadtest.benchmarks.settlement_alone import Settlement
    from loadtest.benchmarks.whole_road import Road


def median(turns: Sequence[Turn], *, side: str) -> float:
    """Return the middle rate of `side`, in answers a second."""
    return statistics.median(turn.per_second for turn in turns if turn.side == side)


def ratio_of_rounds(turns: Sequence[Turn], above: str, below: str) -> float:
    """Return the middle, over the rounds, of the rate of one side ÷ that of the other: a slow minute falls on both."""
    rates = ([turn.per_second for turn in turns if turn.side == side] for side in (above, below))
    return statistics.median(ratio(*pair) for pair in zip(*rates, strict=True))


def busy_share(turns: Sequence[Turn], *, side: str) -> float:
    """Return the middle share of its core that the server of `side` used."""
    return statistics.median(turn.busy for turn in turns if turn.side == side)


def per_cpu_second(turns: Sequence[Turn], *sides: str) -> list[float]:
    """Return the middle answers per second of CPU of each side: what a neighbour on the machine disturbs least."""
    return [
        statistics.median(ratio(turn.per_second, turn.busy) for turn in turns if turn.side == side) for side in sides
    ]


def admission_figures(turns: Sequence[Turn]) -> list[Figure]:
    """Return the figures of the four servers on a core each."""
    sides = ("no-op", "gate", "gate everysec", "plain view")
    noop, gate, relaxed, plain = (median(turns, side=side) for side in sides)
    return [
        Figure(name="no-op ASGI app, one core", value=noop, unit="requests/s"),
        Figure(name="gate, one core, appendfsync always", value=gate, unit="admissions/s", limit=noop),
        Figure(name="gate, one core, appendfsync everysec", value=relaxed, unit="admissions/s", limit=noop),
        Figure(name="plain Django view over WSGI, one core", value=plain, unit="admissions/s", limit=noop),
        Figure(name="gate ÷ no-op", value=ratio(gate, noop), at_least=0.25, aim=0.4),
        # An idle no-op was held up by something else on the machine, and then the ratio flatters the gate.
        Figure(name="no-op server's share of its core (disturbed below 0.9)", value=busy_share(turns, side="no-op")),
        Figure(name="gate ÷ no-op, per second of server CPU", value=ratio(*per_cpu_second(turns, "gate", "no-op"))),
        Figure(name="gate ÷ plain view", value=ratio(gate, plain), at_least=6, aim=10),
        Figure(name="gate, always ÷ everysec", value=ratio(gate, relaxed), at_least=0.7),
    ]


def settlement_figures(settlement: Settlement) -> list[Figure]:
    """Return the figures of settlement alone."""
    batched, single = settlement.batched_per_second, settlement.single_per_second
    return [
        Figure(name="settlement alone, batch 500", value=batched, unit="orders/s", at_least=10_000),
        Figure(name="settlement alone, batch 1", value=single, unit="orders/s"),
        Figure(name="batch 500 ÷ batch 1", value=ratio(batched, single), at_least=40),
        Figure(name="Redis memory of a queued request", value=settlement.bytes_per_request, unit="bytes"),
    ]


def road_figures(road: Road) -> list[Figure]:
    """Return the figures of the whole road."""
    return [
        Figure(
            name=f"whole road, {road.seconds:g} s: ask to durable decision",
            value=road.decided_per_second,
            unit="decisions/s",
            at_least=6_000,
            aim=10_000,
        ),
        Figure(name="whole road: wait for the 202, median", value=road.wait_p50_ms, unit="ms"),
        Figure(name="whole road: wait for the 202, p99", value=road.wait_p99_ms, unit="ms"),
        Figure(name="web process after the flood", value=road.web_mib, unit="MiB", at_most=200),
        Figure(name="settler after the flood", value=road.settler_mib, unit="MiB", at_most=150),
    ]
