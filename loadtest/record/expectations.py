"""Names what a run can be expected to have shown, and keeps what is to be known of a run alongside its record.
Never says whether it was shown: that is the check "inconclusive".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.record.files import write_whole

RUN_FILE = "run.json"

# By its word: what it means when it is missing. The first group is about one sale, the second about all clicks.
OF_A_SALE = {
    "sold_out": "nobody was told it was sold out",
    "paid": "nobody paid",
    "expired": "no hold lapsed",
    "cancelled": "nobody gave up a hold",
    "paid_late": "nobody paid too late",
    "left": "nobody left the line",
    "moved_up": "nobody moved up from the waitlist",
}
OF_CLICKS = {
    "double": "no double click was sent",
    "again": "nobody asked again after an answer",
    "retry": "no repeat met an admitted request",
}
# Happens only when something goes wrong on the way, so a run must ask for it.
OF_TROUBLE = {"unanswered": "nobody asked again after a call without an answer"}
# Happens only where the line is so short that those in it leave something over; in any sale of the run.
OF_SHORT_LINES = {"stood_by": "nobody on standby was held a unit"}
EXPECTATIONS = OF_A_SALE | OF_CLICKS | OF_TROUBLE | OF_SHORT_LINES
FULL_SET = frozenset(OF_A_SALE | OF_CLICKS)


class UnknownExpectation(ValueError):
    """A word that no run can be asked for; the text names those that can."""


def expectations_from(words: Iterable[str]) -> frozenset[str]:
    """Check the words; raise UnknownExpectation. None at all: a run is asked for nothing but that somebody came."""
    chosen = frozenset(words)
    if strange := sorted(chosen - set(EXPECTATIONS)):
        raise UnknownExpectation(f"{', '.join(strange)}: a run can be expected to show {', '.join(EXPECTATIONS)}.")
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What must be known of a run to judge it, alongside the record and the books."""

    expects: frozenset[str] = FULL_SET
    files: int = 0  # how many processes kept a record; 0: not known
    logs: int = 0  # of how many public logs something must be said; 0: not known
    visits: int = 0  # how many buyers were to come; 0: not known
    wall_error_ms: float | None = None  # how far the machines' times of day may differ; None: not known


def read_run(folder: Path) -> RunFacts:
    """Read what was kept with a run; a run without the file is the shop's full flood.

    Raises UnknownExpectation, and OSError, TypeError or ValueError for a file that is none.
    """
    kept = _kept(folder)
    return RunFacts(
        expects=expectations_from(kept["expects"]) if "expects" in kept else FULL_SET,
        files=int(kept.get("files", 0)),
        logs=int(kept.get("logs", 0)),
        visits=int(kept.get("visits", 0)),
        wall_error_ms=kept.get("wall_error_ms"),
    )


def write_run(folder: Path, **facts: Any) -> None:
    """Keep facts of a run alongside its record; those of other names stay as they were."""
    expects = {"expects": sorted(facts["expects"])} if "expects" in facts else {}
    write_whole(folder / RUN_FILE, json.dumps(_kept(folder) | facts | expects, indent=2) + "\n")


def _kept(folder: Path) -> dict[str, Any]:
    path = folder / RUN_FILE
    kept = json.loads(path.read_text()) if path.exists() else {}
    if not isinstance(kept, dict):
        raise ValueError("it is no object")
    return kept
