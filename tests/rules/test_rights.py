"""The tables of least rights in docs/operations.md and the code agree, and every command of a script is granted to
the users who run it. Reads sources only, and runs the script that prints the users. Needs no server.
"""

from __future__ import annotations

import re

import pytest

from tests.rules.sources import ROOT
from tests.support.servers.least_rights import user_lines
from workers.database_rights import KINDS, RIGHTS, holders

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
SECTION = OPERATIONS.partition("## Least rights\n")[2].partition("\n## ")[0]
USERS = {line.split()[1]: line.split()[2:] for line in user_lines()}
SCRIPTS = {path.stem: path.read_text() for path in (ROOT / "inventory" / "scripts").rglob("*.lua")}
CALL = re.compile(r"redis\.call\('([A-Z]+)'")
QUEUES = {name for name in SCRIPTS if name.startswith("queue_")}


def commands_of(name: str) -> set[str]:
    """Return every command that a script sends, with those of the functions that it shares."""
    shared = re.findall(r"^-- Shared: (\w+)", SCRIPTS[name], flags=re.MULTILINE)
    return {word.lower() for text in (name, *shared) for word in CALL.findall(SCRIPTS[text])}


def granted(kind: str) -> set[str]:
    return {word[1:].partition("|")[0] for word in USERS[kind] if word.startswith("+")}


def written_rights(text: str) -> dict[str, tuple[str, ...]]:
    """Return the table of a document: each table with its cells."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|(.*)\|(.*)\|(.*)\|$", text, flags=re.MULTILINE)
    return {name: tuple(cell.strip().replace(" (", "(") for cell in cells) for name, *cells in rows}


def test_the_document_says_what_is_granted() -> None:
    assert {name: cells for name, cells in written_rights(SECTION).items() if name in RIGHTS} == RIGHTS


def test_the_control_another_word_in_the_document_is_found() -> None:
    changed = SECTION.replace("settler (ordinal_base)", "settler")
    assert written_rights(changed) != written_rights(SECTION)


def test_only_kinds_that_there_are_hold_rights() -> None:
    assert {kind for cells in RIGHTS.values() for cell in cells for kind, _ in holders(cell)} == set(KINDS)
    assert set(USERS) == {*KINDS, "default"}


RUN = {
    "web": set(SCRIPTS) - QUEUES,
    "settler": set(SCRIPTS) - QUEUES,
    "reconciler": set(SCRIPTS) - QUEUES,
    "expirer": {"settle", "status", "beat"},
    "payments": {"settle", "status", "beat"},
    "mailer": {"beat"},
    "notary": {"admitted_since", "beat"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_has_every_command_of_the_scripts_it_runs(kind: str) -> None:
    wanted = {command for name in RUN[kind] for command in commands_of(name)}
    assert wanted - granted(kind) == set()


def test_the_control_a_command_of_a_script_is_missed() -> None:
    assert commands_of("take") - granted("mailer") != set()
    assert commands_of("forget_sku") - granted("expirer") == {"hkeys", "unlink"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_process_administers_redis(kind: str) -> None:
    words = {word.partition("|")[0] for word in granted(kind)}
    assert (
        words & {"acl", "config", "flushall", "flushdb", "keys", "scan", "shutdown", "monitor", "debug", "save"}
        == set()
    )
    assert not [word for word in USERS[kind] if word.startswith("+@") or word == "allcommands"]
