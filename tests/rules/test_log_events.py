"""docs/operations.md lists every log event that the code can write, and no other. Reads sources only.
Needs no server.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from tests.rules.sources import FLOORS, ROOT, python_files

OPERATIONS = ROOT / "docs" / "operations.md"


def events_of(source: str) -> Iterator[str]:
    """Yield what each call that logs gives as `action`; what an f-string fills in is a `*`."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") == "add_argument":
            continue
        for value in [keyword.value for keyword in call.keywords if keyword.arg == "action"]:
            parts = value.values if isinstance(value, ast.JoinedStr) else [value]
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)


def grave_events_of(source: str) -> Iterator[str]:
    """Yield the action of each line that is logged as an error, whatever module writes it."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in {"error", "exception", "critical"}:
            yield from events_of(ast.unparse(call))


def rows_of(text: str) -> set[str]:
    """Return the events in the first column of the table of log events."""
    table = text.partition("\n### Log events\n")[2].partition("\n#")[0]
    first = re.findall(r"^\| (`.+?`) \|", table, flags=re.MULTILINE)
    return set(re.findall(r"`(\w+)`", " ".join(first)))


def differences(written: set[str], listed: set[str]) -> tuple[set[str], set[str]]:
    """Return what is written and not listed, and what is listed and not written."""
    missing = {event for event in written if not any(fnmatchcase(row, event) for row in listed)}
    return missing, {row for row in listed if not any(fnmatchcase(row, event) for event in written)}


def test_operations_list_every_log_event_and_no_other() -> None:
    floors = [floor for floor in FLOORS if floor != "loadtest"]
    written = {event for path in python_files(*floors) for event in events_of(path.read_text())}
    assert len(written) > 50
    assert differences(written, rows_of(OPERATIONS.read_text())) == (set(), set())


# Errors that want nobody: they end by themselves, another word or alert tells of them, or the text says what they are.
NO_ALARM = {
    "fence_raised", "fence_refused", "on_lost_failed", "picture_not_deleted", "release_failed", "shard_away",
    "stripe_refused", "traces_failed", "watchdog_error",
}  # fmt: skip


def test_every_error_is_a_word_to_alarm_on_or_known_to_be_none() -> None:
    paths = python_files(*(floor for floor in FLOORS if floor != "loadtest"))
    grave = {event for path in paths for event in grave_events_of(path.read_text())}
    words = set(re.findall(r"`(\w+)`", re.findall(r"Words to alarm on.*?\. ", OPERATIONS.read_text())[0]))
    assert grave - words == NO_ALARM
    assert set(grave_events_of('log.error("a", action="grave")\nlog.info("b", action="light")')) == {"grave"}


def test_an_event_that_is_not_listed_and_one_that_nobody_writes_would_be_found() -> None:
    """The control: of two calls that log and an option of a command, against a table that knows one of them."""
    source = (
        'log.info("a", action="known")\nwrite("b", action=f"new_{mode}")\nadd.add_argument("-x", action="store_true")'
    )
    text = "\n### Log events\n\n| event | what |\n| `known`, `gone` | `not_this` |\n\n### Next\n| `nor_this` | |"
    assert set(events_of(source)) == {"known", "new_*"}
    assert differences(set(events_of(source)), rows_of(text)) == ({"new_*"}, {"gone"})
