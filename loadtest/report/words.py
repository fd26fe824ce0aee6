"""Says in words what a verdict, a wait and a fact of the run come to. Pure; decides nothing itself.
Never claims more than the checks it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from loadtest.checker.table import ABOUT_THE_RUN

GOOD, VOID, BAD = "good", "void", "bad"
NOT_TOLD = "not told"
STUB = ("oversold", "sold twice", "lost", "out of order")
NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Sentence:
    """The verdict. state: good, void (the run proves nothing) or bad."""

    state: str
    headline: str
    rest: str


def sentence_of(verdict: dict[str, Any]) -> Sentence:
    """Return the verdict as one headline and what belongs to it."""
    units, sold, free, moved_up = (
        sum(sale[name] for sale in verdict["sales"]) for name in ("total", "units_sold", "units_free", "moved_up")
    )
    broken = [check["name"] for check in verdict["checks"] if check["count"]]
    if verdict["ok"] and not broken:
        rest = f"{_are(free)} free. Units came back {moved_up:,} times and went to the next in line."
        return Sentence(GOOD, f"{sold:,} of {units:,} units sold, each once.", rest)
    named = ", ".join(broken) or "no check by name"
    if set(broken) <= set(ABOUT_THE_RUN):
        return Sentence(VOID, "This run proves nothing.", f"It cannot be believed: {named}.")
    return Sentence(BAD, "The books do not balance.", f"Broken: {named}.")


def _are(count: int) -> str:
    return f"{count:,} unit{' is' if count == 1 else 's are'}" if count else "None is"


def stub_of(verdict: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the counts that everybody looks for first."""
    counts = {check["name"]: int(check["count"]) for check in verdict["checks"]}
    return [(name, counts[name]) for name in STUB if name in counts]


def moment(unix_ns: int) -> str:
    """Return a moment as the page shows it."""
    return f"{datetime.fromtimestamp(unix_ns / NS_PER_SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC" if unix_ns else NOT_TOLD


def milliseconds(value: float) -> str:
    """Return a wait with as many digits as matter."""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:,.1f} ms"


def facts_of(facts: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return everything about how and on what it ran, in groups of name and value."""
    shop = facts.get("shop") or {}
    database, store = shop.get("database") or {}, shop.get("store") or {}
    versions, commit = facts.get("versions") or {}, facts.get("revision") or {}
    revision = f"{commit['commit']}{' with local changes' if commit.get('dirty') else ''}" if commit else NOT_TOLD
    run = [
        ("Seed", facts.get("seed")),
        ("Buyers", facts.get("buyers")),
        ("Attempts planned", facts.get("attempts")),
        ("Connections", facts.get("connections")),
        ("Revision", revision),
        ("Shop at", facts.get("host")),
    ]
    made_of = [
        ("Fairdrop", versions.get("project")),
        ("Python", shop.get("python") or versions.get("python")),
        ("Django", shop.get("django")),
        (database.get("name") or "PostgreSQL", database.get("version")),
        (store.get("name") or "Valkey", store.get("version")),
        ("Locust", versions.get("locust")),
    ]
    kept = [
        *((f"{database.get('name', 'PostgreSQL')} {name}", value) for name, value in _settings(database)),
        *((f"{store.get('name', 'Valkey')} {name}", value) for name, value in _settings(store)),
    ] or [("PostgreSQL and Valkey", None)]
    hardware = {"processor" if name == "cpu" else name: value for name, value in (facts.get("hardware") or {}).items()}
    machine = [(name[:1].upper() + name[1:], value) for name, value in hardware.items()] or [("Machine", None)]
    groups = {"The run": run, "Machine of the crowd": machine, "Versions": made_of, "When a write is safe": kept}
    return [(title, [(name, _told(value)) for name, value in rows]) for title, rows in groups.items()]


def _settings(store: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in store.items() if name not in ("name", "version")]


def _told(value: Any) -> str:
    if value is None or value == "":
        return NOT_TOLD
    return f"{value:,}" if isinstance(value, int) else str(value)
