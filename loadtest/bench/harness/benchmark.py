"""The skeleton of every benchmark: what it declares, what it is given to measure, and what it hands back.
Never measures by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from loadtest.bench.harness.core_speed import CORE_SPEED, MAX_WAIT_SECONDS, SLOWED
from loadtest.bench.harness.report import Comparison, Figure, number

if TYPE_CHECKING:
    from loadtest.bench.harness.servers import Workspace
    from workers.embedded.server import Server
    from workers.embedded.stores import Servers

Plan = TypeVar("Plan")
Side = TypeVar("Side")

# A measurement during which the host took more of the machine than this is repeated, so often at most.
DISTURBED = 0.05
MAX_REPEATS = 2
# Short ones that end on a slow core are repeated for so long; a long one fills the stores, and would change the next.
REPEATING_SECONDS = 20.0
# What a page says of that.
REPEATED = (
    f"A measurement begins when its cores are quiet: on none of them a fixed loop takes over {SLOWED * 100:g} % longer "
    f"than at best in this run, or {MAX_WAIT_SECONDS:g} s have passed. One in which the host took more than "
    f"{DISTURBED * 100:g} % of the machine is repeated, twice at most, and a short one after which a core is not "
    f"quiet, for {REPEATING_SECONDS:g} s. The least disturbed counts, whatever it measured."
)


class Measured(Protocol):
    """One measurement. stolen: share of the machine's time that its host gave to others meanwhile."""

    @property
    def stolen(self) -> float: ...


Found = TypeVar("Found", bound=Measured)


@dataclass(frozen=True, kw_only=True)
class Stores:
    """What a benchmark runs on: pairs of stores, the first the settings' own; or Valkeys alone.

    environment: what the servers under test get, in a process of their own.
    """

    pairs: Sequence[Servers] = ()
    valkeys: Sequence[Server] = ()
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class BenchmarkRun(Generic[Plan]):
    """What a benchmark is given. hardware: as it was before the run made it busy."""

    plan: Plan
    quick: bool
    stores: Stores
    place: Workspace
    hardware: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a benchmark hands back; picture: the text of an SVG. facts: groups that stand for those of every benchmark.

    faults: what fails the run besides a missed floor; samples: every single measurement behind the medians.
    """

    figures: Sequence[Figure]
    samples: Sequence[Mapping[str, Any]]
    faults: Sequence[str] = ()
    comparisons: Sequence[Comparison] = ()
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    picture: str = ""


@dataclass(frozen=True, kw_only=True)
class Benchmark(Generic[Plan]):
    """One benchmark. packages: whose versions its page names; picture: what the chart shows.

    method: how it measures, in sentences that name numbers of a plan. command: its make target, when that is not
    bench-NAME.
    """

    title: str
    packages: Sequence[str]
    full: Plan
    quick: Plan
    method: Sequence[str]
    measure: Callable[[BenchmarkRun[Plan]], Findings]
    picture: str = ""
    command: str = ""


def say(text: str) -> None:
    """Print `text` at once."""
    print(text, flush=True)


def say_fields(found: object, *, of: str = "") -> None:
    """Print the numbers and words that a measurement consists of, by their names. of: what stands before them."""
    shown = {name: each for name, each in vars(found).items() if isinstance(each, str | int | float)}
    parts = [f"{name} {number(each) if isinstance(each, float) else each}" for name, each in shown.items()]
    say("  " + "   ".join([of, *parts] if of else parts))


def repeat_disturbed(measure: Callable[[], Found], *, cores: Set[int] = frozenset(), of: str = "") -> Found:
    """Measure once, and again while the host disturbed it; return the least disturbed one, however much that was.

    cores: those that must be quiet, where it is bound to some; of: what stands before the numbers of each. It is
    disturbed by CPU time that went to others, and, if it is short, by a core that is slow after it.
    """
    began, tried = time.monotonic(), list[tuple[float, float, Found]]()
    while True:
        CORE_SPEED.await_quiet(cores=cores)
        found = measure()
        say_fields(found, of=of)
        slowed = CORE_SPEED.slowed(cores=cores)
        tried.append((max(found.stolen / DISTURBED, slowed / SLOWED), slowed, found))
        is_stolen = found.stolen > DISTURBED and len(tried) <= MAX_REPEATS
        if not is_stolen and (slowed <= SLOWED or time.monotonic() - began > REPEATING_SECONDS):
            break
        say(f"  the host took {found.stolen:.1%} of the machine, a core was slower by {slowed:.0%}: once more")
    _, slowed, found = min(tried, key=lambda each: each[0])
    CORE_SPEED.note(slowed, repeated=len(tried) - 1)
    return found


def in_turns(sides: Sequence[Side], *, rounds: int) -> Iterator[tuple[int, Side]]:
    """Yield the number of the round and the side whose turn it is: every side once a round.

    So whatever else the machine does falls on all sides alike.
    """
    for turn in range(rounds):
        # Every second round runs backwards: a machine that grows slower does not always hit the same side.
        for side in sides if turn % 2 == 0 else reversed(sides):
            yield turn, side
