"""Lists the runs of a folder on one page: when each began, how it ended, and a link to its report. Needs no network.
Never changes a run, and never judges: a run's own verdict is read as it was written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loadtest.checker.verdict import VERDICT_FILE
from loadtest.record.expectations import RUN_FILE
from loadtest.record.facts import read_facts
from loadtest.record.files import write_whole
from loadtest.report import words
from loadtest.users.crowd import read_progress

HERE = Path(__file__).resolve().parent
REPORT_FILE, INDEX_FILE = "report.html", "index.html"
STOPPED_EARLY = "Stopped early, not judged."
NO_VERDICT = "Under way, or ended without a verdict."
COUNTED = {"attempts": "Purchase attempts", "admitted": "Admitted", "decided": "Decided", "paid": "Paid at once"}


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run. state: good, void or bad, as in the report."""

    name: str
    began: str
    host: str
    state: str
    outcome: str
    report: str  # where its report is, seen from the list; "" when there is none


def rows_of(root: Path) -> list[RunRow]:
    """Return the runs of a folder, the newest first."""
    folders = [path.parent for path in root.glob(f"*/{RUN_FILE}")]
    known = sorted(((folder, read_facts(folder)) for folder in folders), key=_began, reverse=True)
    return [_row(folder, facts) for folder, facts in known]


def index_of(root: Path) -> str:
    """Return the page that lists the runs of a folder."""
    return str(_template("index.html").render(style=_style(), runs=rows_of(root)))


def write_index(root: Path) -> Path:
    """Write index.html into the folder of the runs and return its path."""
    path = root / INDEX_FILE
    write_whole(path, index_of(root))
    return path


def write_unjudged(folder: Path) -> Path:
    """Write the report of a run that was stopped early: what its clients counted, on what it ran, and no verdict."""
    facts, counts = read_facts(folder), read_progress(folder)
    page = _template("unjudged.html").render(
        style=_style(),
        headline=STOPPED_EARLY,
        began=words.moment(int(facts.get("began_unix_ns") or 0)),
        counts=[(title, getattr(counts, name)) for name, title in COUNTED.items()],
        facts=words.facts_of(facts),
        command=facts.get("command") or words.NOT_TOLD,
    )
    path = folder / REPORT_FILE
    write_whole(path, page)
    return path


def _began(run: tuple[Path, dict[str, Any]]) -> tuple[int, str]:
    folder, facts = run
    return int(facts.get("began_unix_ns") or 0), folder.name


def _row(folder: Path, facts: dict[str, Any]) -> RunRow:
    state, outcome = _outcome(folder, facts)
    report = f"{folder.name}/{REPORT_FILE}" if (folder / REPORT_FILE).exists() else ""
    began = words.moment(int(facts.get("began_unix_ns") or 0))
    return RunRow(folder.name, began, str(facts.get("host") or words.NOT_TOLD), state, outcome, report)


def _outcome(folder: Path, facts: dict[str, Any]) -> tuple[str, str]:
    if facts.get("stopped_early"):
        return words.VOID, STOPPED_EARLY
    try:
        sentence = words.sentence_of(json.loads((folder / VERDICT_FILE).read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return words.VOID, NO_VERDICT
    return sentence.state, sentence.headline


def _template(name: str) -> Any:
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    return environment.get_template(name)


def _style() -> Markup:
    return Markup((HERE / "page.css").read_text())  # noqa: S704 - our own file
