"""Says what the runs came to: was each mutant seen for what it is, was the shop as it is green; makes the page.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.bench.harness.report import Comparison, Figure, Report
from loadtest.mutants.guards import GUARDS
from loadtest.mutants.one_run import ATTEMPTS, BUYERS, HOLD_SECONDS, MISCOUNTED, UNITS

AS_IT_IS = "the shop as it is"
HEAD = ("mutant", "the promise", "switched off", "verdict", "checks that named it", "invariants that named it", "s")
METHOD = (
    "Each run is a shop of its own: PostgreSQL and Valkey with every write on disk, web, expirer, payments, "
    "reconciler, sandbox, two notaries, one after the other, five settlers. A run ends with "
    "the verdict of the standard flood (`loadtest/run_flood.py`), here "
    f"{BUYERS} buyers with {ATTEMPTS:,} attempts at three sales of {UNITS} units, held for {HOLD_SECONDS} s. One sale "
    "allows two units a buyer, the others one; one has no line beyond its units, so that what comes back goes to those "
    "on standby.",
    "Every run, mutated or not, meets the same trouble in its rush: one settler is killed with a batch in its hands, "
    "one after its COMMIT and before its answer, one is frozen with a batch, of whose units staff then count "
    f"{MISCOUNTED} fewer, loses its lock to staff, and wakes when the others have given all units and staff have found "
    "the missing ones; the notary is killed when places of each sale are in its public log, and the next one starts "
    "when others have been decided (`loadtest/mutants/trouble.py`).",
    "A mutant is a whole promise switched off, with every layer that keeps it (`loadtest/mutants/guards.py`): in the "
    "processes by `FAIRDROP_MUTANT`, which only `FAIRDROP_ENV=test` accepts, and in the tables of the run. "
    "Each layer must be found exactly once, or the run does not begin.",
    "Without the fence alone no unit goes astray here: the unique ids lie behind it. What is seen is a movement under "
    "an old fence.",
    "A mutant counts as seen only when the verdict is red and the audit names an invariant that is its own; the shop "
    "as it is counts as green only when every check holds, the independent script finds no fault in "
    "the public log of any sale, and all the trouble came about.",
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run. checks: broken ones, each with a detail. missed: trouble that did not come about; seconds: all of it."""

    mutant: str
    green: bool
    checks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    invariants: Sequence[str] = ()
    missed: Sequence[str] = ()
    seconds: float = 0.0
    fault: str = ""

    @property
    def as_wanted(self) -> bool:
        """Say whether a mutant was seen for what it is, or the shop as it is was green in all its trouble."""
        if self.fault:
            return False
        if not self.mutant:
            return self.green and not self.missed
        return not self.green and bool(GUARDS[self.mutant].names & set(self.invariants))

    @property
    def sentence(self) -> str:
        """Say in a line what came of it."""
        name = self.mutant or AS_IT_IS
        if self.fault:
            return f"{name}: {self.fault}"
        said = "green" if self.green else f"red: {', '.join([*self.checks, *self.invariants])}"
        return f"{name}: {said}" + (f"; did not come about: {', '.join(self.missed)}" if self.missed else "")


def outcome_of(result: Mapping[str, Any]) -> Outcome:
    """Return what one_run.py wrote, as an outcome."""
    return Outcome(**{name: result[name] for name in ("mutant", "green", "checks", "invariants", "missed", "seconds")})


def green_in_a_row(outcomes: Sequence[Outcome]) -> int:
    """Return how many runs of the shop as it is were green before the first that was not."""
    count = 0
    for outcome in outcomes:
        if outcome.mutant:
            continue
        if not outcome.as_wanted:
            break
        count += 1
    return count


def report_of(
    outcomes: Sequence[Outcome], *, wanted: Sequence[str], greens: int, date: str, revision: str, facts: Any
) -> Report:
    """Return the page. wanted: the mutants that were to run; greens: how many runs of the shop as it is."""
    mutants = [each for each in outcomes if each.mutant]
    figures = [
        Figure(name="mutants seen for what they are", value=sum(o.as_wanted for o in mutants), at_least=len(wanted)),
        Figure(name="runs of the shop as it is, green in a row", value=green_in_a_row(outcomes), at_least=greens),
    ]
    return Report(
        title="Mutants: each guard switched off once",
        command="make mutants",
        date=date,
        revision=revision,
        quick=False,
        figures=figures,
        facts=facts,
        method=METHOD,
        samples=[_sample(number, each) for number, each in enumerate(outcomes, 1)],
        faults=[each.sentence for each in outcomes if not each.as_wanted],
        comparisons=[Comparison(title="Each mutant", head=HEAD, rows=[_row(each) for each in mutants])]
        if mutants
        else [],
    )


def _row(outcome: Outcome) -> list[str]:
    guard = GUARDS[outcome.mutant]
    return [
        f"`{outcome.mutant}`",
        guard.promise,
        "; ".join(guard.layers),
        "no verdict" if outcome.fault else "green" if outcome.green else "red",
        ", ".join(outcome.checks),
        ", ".join(f"**{name}**" if name in guard.names else name for name in outcome.invariants),
        f"{outcome.seconds:.0f}",
    ]


def _sample(number: int, outcome: Outcome) -> dict[str, Any]:
    details = [detail for found in outcome.checks.values() for detail in found]
    return {
        "run": number,
        "mutant": outcome.mutant or AS_IT_IS,
        "verdict": "green" if outcome.green else "red",
        "did_not_come_about": ", ".join(outcome.missed),
        "the_first_of_each_check": "; ".join(details).replace("|", "/"),
        "seconds": f"{outcome.seconds:.0f}",
    }
