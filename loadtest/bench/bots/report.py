"""What the bot lab promises: figures with their bounds, the table of defences, the method. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from loadtest.bench.bots.attacks import PRESSES, PlayedAttack
from loadtest.bench.bots.crowd import LAST_SECONDS, REACTION_MEDIAN_SECONDS, REACTION_SIGMA, Plan
from loadtest.bench.harness.report import Comparison, Figure, filled

MAX_ROBBER_PER_CENT = 5
MAX_REFUSED_PER_CENT = 1
# Without defences the robber must take this much, or the attack was none and its repulse proves nothing.
MIN_UNDEFENDED_PER_CENT = 50
DEFENCE_NAMES = NONE, RATES, NETWORKS, DEFAULTS = "none", "calls by address", "units by network", "the defaults"
HEAD = ("defences", "robber", "people", "of them behind shared addresses", "people refused by a limit", "p99 of people")
ATTACK_HEAD = ("defence", "presses", "may be let in", "let in", "let in by its mutant")
METHOD = (
    "{units} units, one a buyer, in a sale that is open when the first press comes. {people:,} people press after a "
    "reaction time from a lognormal distribution (median {median:g} s, sigma {sigma:g}, none after {last:g} s). "
    "{shared_per_cent} % of them share {shared_addresses} addresses; each other has address and network of its own.",
    "The robber has one address and {tokens:,} tokens from before the opening, and sends all its presses within "
    "{robber_seconds:g} s from the opening. Nobody who is refused comes again.",
    "One web process with the defences of the row, one settler, Valkey with every write on disk, PostgreSQL; people "
    "and robber are a process each. Who holds a unit at the end has got it. {rounds} openings a row, each with other "
    "people; medians, and of the bounded figures the worst.",
    "Then each defence is attacked alone, by {attack_presses} presses one after the other, and once more with that "
    "defence switched off (a mutant, of the tests' settings alone): it must hold, and without it all must be let in.",
    "Addresses are simulated: the processes send X-Forwarded-For, and the shop trusts them as its proxy.",
    "What it does not show: a robber with many networks gets as many times the limit as it has networks.",
)


@dataclass(frozen=True, kw_only=True)
class BotRound:
    """What came of one opening, in units. shared: of the people who share addresses; units: all.

    refused: people who were told 429; p99_ms: how long people waited for their answer.
    """

    defence: str
    units: int
    robber: int
    people: int
    shared: int
    refused: int
    p99_ms: float

    @property
    def robber_per_cent(self) -> float:
        """Return the robber's share of the units."""
        return 100 * self.robber / self.units


def of(outcomes: Sequence[BotRound], defence: str) -> list[BotRound]:
    """Return the outcomes of one set of defences."""
    return [each for each in outcomes if each.defence == defence]


def figures_of(outcomes: Sequence[BotRound], *, people: int) -> list[Figure]:
    """Return the figures with their bounds: the worst opening counts."""
    undefended, defended = of(outcomes, NONE), of(outcomes, DEFAULTS)
    return [
        Figure(
            "units of one address without defences (the control)",
            value=min(each.robber_per_cent for each in undefended),
            unit="%",
            at_least=MIN_UNDEFENDED_PER_CENT,
        ),
        Figure(
            "units of one address with the defaults",
            value=max(each.robber_per_cent for each in defended),
            unit="%",
            at_most=MAX_ROBBER_PER_CENT,
        ),
        Figure(
            "people refused by a limit with the defaults",
            value=max(100 * each.refused / people for each in defended),
            unit="%",
            at_most=MAX_REFUSED_PER_CENT,
        ),
    ]


def comparison_of(outcomes: Sequence[BotRound]) -> Comparison:
    """Return the table with a row for each set of defences: medians of its openings."""
    rows = []
    for name in DEFENCE_NAMES:
        found = of(outcomes, name)
        middle = [median(getattr(each, part) for each in found) for part in ("robber", "people", "shared", "refused")]
        p99_ms = median(each.p99_ms for each in found)
        rows.append((name, *(f"{value:g}" for value in middle), f"{p99_ms:.0f} ms"))
    return Comparison(title="Who got the units", head=HEAD, rows=rows)


def figures_of_attacks(played: Sequence[PlayedAttack]) -> list[Figure]:
    """Return how many defences were seen to matter: each holds, and each that is switched off is noticed."""
    seen = sum(each.is_seen for each in played)
    return [Figure("defences that hold, and are missed when they are off", value=seen, at_least=len(played))]


def attacks_of(played: Sequence[PlayedAttack]) -> Comparison:
    """Return the table with a row for each attack."""
    rows = [
        (each.name, *(str(n) for n in (each.presses, each.most, each.defended, each.undefended))) for each in played
    ]
    return Comparison(title="Each defence alone, and without it", head=ATTACK_HEAD, rows=rows)


def method_of(plan: Plan) -> list[str]:
    """Return the method in sentences, with the numbers of this run."""
    return filled(
        METHOD, plan, attack_presses=PRESSES, median=REACTION_MEDIAN_SECONDS, sigma=REACTION_SIGMA, last=LAST_SECONDS
    )
