"""Orders the turns of a run, so that whatever else the machine does falls on all sides alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

Side = TypeVar("Side")


def in_turns(sides: Sequence[Side], *, rounds: int) -> Iterator[tuple[int, Side]]:
    """Yield the number of the round and the side whose turn it is: every side once a round."""
    for number in range(rounds):
        # Every second round runs backwards: a machine that grows slower does not always hit the same side.
        for side in sides if number % 2 == 0 else reversed(sides):
            yield number, side
