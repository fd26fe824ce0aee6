"""What the comparison must show: every promise kept, every naive way seen to fail, and Fairdrop far ahead. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loadtest.bench.harness.figures import Figure, ratio

if TYPE_CHECKING:
    from loadtest.bench.compare.run import Result

OURS = "fairdrop"
# Settled orders a second, Fairdrop's alongside those of the fastest rival that keeps its promise.
MIN_RATIO = 8.0


def wrong_units(result: Result) -> int:
    """Return how many units were sold too often, not at all, or promised and never given."""
    sold = result.selling_out
    return sold.oversold + sold.undersold + sold.lost


def best_rival(results: Sequence[Result]) -> Result | None:
    """Return the fastest rival that promised, and kept, that nothing is oversold, undersold or lost; None: none did."""
    kept = [each for each in results if each.correct and each.name != OURS and not wrong_units(each)]
    return max(kept, key=lambda result: result.selling.settled_per_second, default=None)


def figures_of(results: Sequence[Result], *, quick: bool) -> list[Figure]:
    """Return every figure with its bound. quick: too short a run to hold the speed against its floor."""
    ours = next(each for each in results if each.name == OURS).selling
    rival = best_rival(results)
    theirs = rival.selling if rival else None
    settled = theirs.settled_per_second if theirs else float("nan")
    cpu_ms = theirs.cpu_ms if theirs else float("nan")
    return [
        *map(_promise, results),
        Figure(name="Fairdrop, settled", value=ours.settled_per_second, unit="orders/s"),
        Figure(name=f"best correct rival ({rival.title if rival else 'none'})", value=settled, unit="orders/s"),
        Figure(
            name="Fairdrop ÷ best correct rival",
            value=ratio(ours.settled_per_second, settled),
            at_least=None if quick else MIN_RATIO,
        ),
        # What a neighbour on the machine disturbs least.
        Figure(name="the same, orders per second of CPU of sellers and stores", value=ratio(cpu_ms, ours.cpu_ms)),
    ]


def _promise(result: Result) -> Figure:
    return Figure(
        name=f"{result.title}: oversold + undersold + lost" + ("" if result.correct else ", must be seen to fail"),
        value=wrong_units(result),
        unit="units",
        at_most=0 if result.correct else None,
        at_least=None if result.correct else 1,
    )
