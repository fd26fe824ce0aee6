"""What the bot lab promises: figures with their bounds, the table of openings, the chart, the method. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from loadtest.bench.bots.attacks import PRESSES, PlayedAttack
from loadtest.bench.bots.crowd import (
    ALL,
    CHECKED,
    CODES,
    DEFAULTS,
    GUESSING,
    HOLDING,
    LAST_SECONDS,
    MADE,
    MANY_NETWORKS,
    NOBODY,
    NONE,
    ONE_ADDRESS,
    ONE_NETWORK,
    OPENINGS,
    PASSES,
    REACTION_MEDIAN_SECONDS,
    REACTION_SIGMA,
    WORKING_SECONDS,
    Defence,
    PassCosts,
    Plan,
)
from loadtest.bench.harness.charts import bars
from loadtest.bench.harness.report import Comparison, Figure

MAX_ROBBER_PER_CENT = 5
MAX_REFUSED_PER_CENT = 1
MAX_ADDED_MS = 300
MIN_CHECKED_PER_SECOND = 2_000
# A robber who held for nothing under the defaults leaves people this share of the units.
MIN_LEFT_PER_CENT = 90
# Without defences the robber must take this much, or the attack was none and its repulse proves nothing.
MIN_UNDEFENDED_PER_CENT = 50
HEAD = (
    "attack",
    "defences",
    "people got, % of units",
    "robber got, %",
    "it cost: addresses",
    "tokens",
    "proofs",
    "CPU s",
    "people refused by a limit",
    "of them behind shared addresses",
    "people told to come again",
    "added wait p50, ms",
    "p99, ms",
)
# What stands in its columns from the third to the last but two.
PARTS = (
    "people_per_cent",
    "robber_per_cent",
    "addresses",
    "tokens",
    "proofs",
    "cpu_seconds",
    "refused",
    "refused_shared",
    "again",
)
ATTACK_HEAD = ("defence", "presses", "may be let in", "let in", "let in by its mutant")
UNSOLVED = (
    "**Many networks.** A limit for each network is paid once for each network: a robber with fifty takes fifty times "
    "as much, before most people have pressed. Neither calls by address nor units by network solve it. Access codes "
    "do, as long as there are no more of them than units; with more codes than units the faster holders of codes win "
    "again.",
    "**Cores.** A pass stops who has none. A robber with a core and the time that a pass lives works for as many as "
    "`proofs` says; what it pays is in `CPU s`. Passes make an attack dearer and do not solve it.",
    "**Who is given codes.** A robber's share is its share of the codes. Whom they are given to decides, and no lab "
    "sees that; the same holds for lists of e-mail addresses.",
    "**One person, few units.** What looks like people, presses like people and comes from addresses like people's is "
    "not told apart from people. Staff see [clusters](../operations.md#limits-by-address-and-network) afterwards.",
    "**Hold and release without a limit.** What comes of it depends on the moment: people who found room in the line "
    "get what is given back, and those who were told that it was full have gone. Units by network leave people room; "
    "the limit of requests that end unsold, which is attacked below, stops one buyer, not one with many tokens.",
    "**Waiting for a code.** A code is looked up in the database: a flood of made-up codes makes people wait, for "
    "as long as the column of added waits says. The bound of guesses is by network.",
    "**Large shared networks.** People behind one address share one limit. The bound on refusals holds for groups of "
    "the size in this crowd; for a larger campus raise the limit of the sale, and the robber in it is let in as "
    "often.",
)
METHOD = (
    "{units} units, one a buyer, in a sale that is open when the first press comes. {people:,} people press after a "
    "reaction time from a lognormal distribution "
    f"(median {REACTION_MEDIAN_SECONDS:g} s, sigma {REACTION_SIGMA:g}, none after {LAST_SECONDS:g} s). "
    "{shared_per_cent} % of them share {shared_addresses} addresses, as many each; each other has address and network "
    "of its own. Nobody who is refused comes again.",
    "Every robber has {tokens:,} tokens from before the opening. One address sends all its presses within "
    "{one_address_seconds:g} s, the others within {robber_seconds:g} s: from 250 addresses of one network, or in turn "
    "from {networks} networks, which are those of the solver and of the guesser too. Hold and release is one address: "
    "it gives back all that it holds when the people have gone, and again what it then gets.",
    f"The solver has one core, or two, for {WORKING_SECONDS:,} s before the opening, for so long a pass can be worked "
    "for and still be good. What one pass costs is measured: three are solved as ALTCHA's library does, and handed in. "
    "The lab then signs as many as that allows, and one for each of the people, who have solved theirs during the "
    "countdown; a program in a faster language pays less than these CPU seconds. What passes cost the shop is measured "
    f"alone: {MADE:,} challenges made and one solution checked {CHECKED:,} times, by the CPU time of the process.",
    "A sale with codes has as many codes as units. {robber_codes} are the robber's, the others are with people drawn "
    "by lot, and who has none is told so: that is no refusal by a limit. The guesser has none, and makes one up for "
    "each press. CPU s counts the proofs alone: to send the presses takes a second of one core.",
    "One web process with the defences of the row, one settler, Valkey with every write on disk, PostgreSQL; people "
    "and robber are a process each. A unit that is held at the end was got. {rounds} openings a row, each with other "
    "people; medians. Of the bounded figures the worst opening counts; of refusals the mean, for they are rare. Told "
    "to come again is 503. Added wait: over that of an opening without robber and defences; below 0 is noise.",
    f"Then each defence is attacked alone, by {PRESSES} presses one after the other, and once more with that "
    "defence switched off (a mutant, of the tests' settings alone): it must hold, and without it all must be let in.",
    "Addresses are simulated: the processes send X-Forwarded-For, and the shop trusts them as its proxy.",
)


@dataclass(frozen=True, kw_only=True)
class BotRound:
    """What came of one opening, in units. shared: of the people who share addresses; units: all that there were.

    people_let_in, robber_let_in: into the line, whatever came of it. refused, refused_shared: people who were told 429;
    again: people who were told 503; p50_ms, p99_ms: how long people waited for their answer. proofs: passes or
    codes of the robber; cpu_seconds: what its passes cost.
    """

    attack: str
    defence: str
    units: int
    robber: int
    people: int
    shared: int
    people_let_in: int
    robber_let_in: int
    refused: int
    refused_shared: int
    again: int
    p50_ms: float
    p99_ms: float
    addresses: int
    tokens: int
    proofs: int
    cpu_seconds: float

    @property
    def robber_per_cent(self) -> float:
        """Return the robber's share of the units."""
        return 100 * self.robber / self.units

    @property
    def people_per_cent(self) -> float:
        """Return the people's share of the units."""
        return 100 * self.people / self.units


def of(outcomes: Sequence[BotRound], attack: str, defence: Defence) -> list[BotRound]:
    """Return the openings of one row."""
    return [each for each in outcomes if (each.attack, each.defence) == (attack, defence.name)]


def _worst(outcomes: Sequence[BotRound], *attacks: str, defence: Defence) -> float:
    """Return the largest share that a robber got with this defence."""
    return max(each.robber_per_cent for attack in attacks for each in of(outcomes, attack, defence))


def figures_of(outcomes: Sequence[BotRound], *, plan: Plan) -> list[Figure]:
    """Return the figures with their bounds."""
    undefended = [each for attack in (ONE_ADDRESS, MANY_NETWORKS, GUESSING) for each in of(outcomes, attack, NONE)]
    return [
        Figure(
            "units of a robber without defences (the control)",
            value=min(each.robber_per_cent for each in undefended),
            unit="%",
            at_least=MIN_UNDEFENDED_PER_CENT,
        ),
        Figure(
            "units of one address or network with the defaults",
            value=_worst(outcomes, ONE_ADDRESS, ONE_NETWORK, defence=DEFAULTS),
            unit="%",
            at_most=MAX_ROBBER_PER_CENT,
        ),
        Figure(
            f"units of {plan.networks} networks with the defaults",
            value=_worst(outcomes, MANY_NETWORKS, defence=DEFAULTS),
            unit="%",
        ),
        Figure(
            f"units of {plan.networks} networks in a sale with codes, of which they have {plan.robber_codes}",
            value=_worst(outcomes, MANY_NETWORKS, defence=CODES),
            unit="%",
            at_most=100 * plan.robber_codes / plan.units,
        ),
        Figure("units of a guesser of codes", value=_worst(outcomes, GUESSING, defence=CODES), unit="%", at_most=0),
        *_figures_of_people(outcomes, plan=plan),
    ]


def _figures_of_people(outcomes: Sequence[BotRound], *, plan: Plan) -> list[Figure]:
    left = min(each.people_per_cent for each in of(outcomes, HOLDING, DEFAULTS))
    refused = mean(each.refused for each in outcomes if each.defence == DEFAULTS.name)
    alone, passes = (median(each.p99_ms for each in of(outcomes, NOBODY, side)) for side in (NONE, PASSES))
    return [
        Figure("units left to people by hold and release, defaults", value=left, unit="%", at_least=MIN_LEFT_PER_CENT),
        Figure(
            "people refused by a limit with the defaults",
            value=100 * refused / plan.people,
            unit="%",
            at_most=MAX_REFUSED_PER_CENT,
        ),
        Figure("wait that passes add for people, p99", value=passes - alone, unit="ms", at_most=MAX_ADDED_MS),
    ]


def comparison_of(outcomes: Sequence[BotRound]) -> Comparison:
    """Return the table with a row for each robber and set of defences: medians of its openings."""
    alone = of(outcomes, NOBODY, NONE)
    rows = []
    for attack, defences in OPENINGS.items():
        for defence in defences:
            found = of(outcomes, attack, defence)
            middle = [f"{_middle(found, part):.4g}" for part in PARTS]
            added = [f"{_middle(found, part) - _middle(alone, part):+.0f}" for part in ("p50_ms", "p99_ms")]
            rows.append((attack, defence.name, *middle, *added))
    return Comparison(title="Who got the units, and what it cost", head=HEAD, rows=rows)


def _middle(found: Sequence[BotRound], part: str) -> float:
    return float(median(getattr(each, part) for each in found))


def picture_of(outcomes: Sequence[BotRound]) -> str:
    """Return the chart: a panel for each attack, and the people's share with each set of defences."""
    panels = {
        f"{attack}: units that people got, % (longer is better)": {
            defence.name: _middle(of(outcomes, attack, defence), "people_per_cent") for defence in defences
        }
        for attack, defences in OPENINGS.items()
    }
    return bars(panels, ours=(DEFAULTS.name, ALL.name), limits=(NONE.name,), description="Units that people got")


def figures_of_passes(costs: PassCosts) -> list[Figure]:
    """Return what passes cost the shop: a flood of them takes one core at most, and this is how far it comes."""
    checked, made = costs.checked, costs.made
    return [
        Figure("passes checked, a second and core", value=checked, unit="1/s", at_least=MIN_CHECKED_PER_SECOND),
        Figure("challenges made, a second and core", value=made, unit="1/s"),
    ]


def figures_of_attacks(played: Sequence[PlayedAttack]) -> list[Figure]:
    """Return how many defences were seen to matter: each holds, and each that is switched off is noticed."""
    seen = sum(each.is_seen for each in played)
    return [Figure("defences that hold, and are missed when they are off", value=seen, at_least=len(played))]


def attacks_of(played: Sequence[PlayedAttack]) -> Comparison:
    """Return the table with a row for each attack."""
    rows = [
        (each.name, *(str(n) for n in (each.presses, each.limit, each.defended, each.undefended))) for each in played
    ]
    return Comparison(
        title="Each defence alone, and without it",
        head=ATTACK_HEAD,
        rows=rows,
        note="## What stays unsolved\n\n" + "\n".join(f"- {line}" for line in UNSOLVED),
    )
