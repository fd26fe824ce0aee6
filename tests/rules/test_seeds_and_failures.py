"""The pages of what the articles ask, of how others failed and of what is protected leave out no number and name only
what exists.
Reads sources only. Needs no server.
"""

from __future__ import annotations

import ast
import re
from functools import cache, reduce
from importlib import import_module

import pytest

from tests.rules.sources import FLOORS, ROOT, python_files, tree_of

SEEDS = (ROOT / "docs" / "seeds.md").read_text()
FAILURES, _, OPEN = (ROOT / "docs" / "failure-cases.md").read_text().partition("\n## What is open\n")
SECURITY = (ROOT / "docs" / "security.md").read_text()
PAGES = SEEDS + FAILURES + OPEN + SECURITY

# How many of each there are: the lists themselves are not part of the repository.
NUMBERS = {"S": 23, "L": 26, "Q": 18, "R": 43, "I": 24}
# What has no guard, or a guard that no test shows. Nobody adds to it without a word.
KNOWN_OPEN = {"L16", "L21", "Q17", "I18"}
# Chapters of ASVS and automated threats that have nothing to do with this shop, or are somebody else's.
NOT_OURS = {"V10", "V17", "OAT-003", "OAT-012", "OAT-016", "OAT-020"}
# Those of which a part, or all, is not done yet.
OPEN_THREATS = {"OAT-005", "OAT-006", "OAT-021"}
# What cannot happen in this shop.
NOT_APPLICABLE: set[str] = set()

ROW = re.compile(r"^\| ([SLQRI]\d+) \| (.+) \|$", flags=re.MULTILINE)
FUNCTION = re.compile(rf"`((?:{'|'.join(FLOORS)})(?:\.\w+)+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NUMBER = re.compile(r"\b[SLQ]\d{1,2}\b")


def rows(text: str) -> list[tuple[str, str]]:
    """Return number and content of every row, in order."""
    return ROW.findall(text)


def all_numbers(kinds: str) -> list[str]:
    return [f"{kind}{number}" for kind in kinds for number in range(1, NUMBERS[kind] + 1)]


def resolves(name: str) -> bool:
    """Say whether a dotted name leads to a module or to something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        try:
            return reduce(getattr, parts[length:], module) is not None
        except AttributeError:
            return False
    return False


@cache
def named_tests(path: str) -> frozenset[str]:
    """Return the names of the tests in one file; none when there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    functions = (node for node in ast.walk(tree_of(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def test_what_is_missing_would_be_found() -> None:
    """The control: invented rows, functions and tests are seen as such."""
    assert rows("| S1 | a | `inventory.no_such` |\n| # | no row |\n") == [("S1", "a | `inventory.no_such`")]
    names = (
        "inventory.locks.lock.Lock.acquire",
        "inventory.locks.lock.Lock.no_such",
        "inventory.no_such",
        "no_such.at_all",
    )
    assert [resolves(name) for name in names] == [True, False, False, False]
    here = "tests/rules/test_seeds_and_failures.py"
    assert "test_what_is_missing_would_be_found" in named_tests(here)
    assert "resolves" not in named_tests(here)
    assert named_tests("tests/rules/test_no_such.py") == frozenset()


@pytest.mark.parametrize(("page", "kinds"), [(SEEDS, "S"), (FAILURES, "LQRI")], ids=["seeds", "failure cases"])
def test_every_number_has_its_row_once_and_in_order(page: str, kinds: str) -> None:
    assert [number for number, _ in rows(page)] == all_numbers(kinds)


def test_every_seed_has_its_function_and_its_test() -> None:
    assert [number for number, text in rows(SEEDS) if not (FUNCTION.search(text) and TEST.search(text))] == []


def test_every_failure_case_has_its_test_or_does_not_apply() -> None:
    without_test = {number for number, text in rows(FAILURES) if not TEST.search(text)}
    said_so = {number for number, text in rows(FAILURES) if "Does not apply" in text}
    assert without_test == said_so == NOT_APPLICABLE


def test_every_threat_has_its_test_or_says_why_not() -> None:
    found = re.findall(r"^\| (V\d+|OAT-\d+) [^|]*\| (.+) \|$", SECURITY, flags=re.MULTILINE)
    expected = [*(f"V{number}" for number in range(1, 18)), *(f"OAT-{number:03}" for number in range(1, 22))]
    assert [number for number, _ in found] == expected
    still_open = {number for number, text in found if "**Open**" in text or "**Missing" in text}
    assert still_open == OPEN_THREATS
    assert {number for number, text in found if not TEST.search(text)} - still_open == NOT_OURS


def test_what_is_open_is_said() -> None:
    assert {number for number, _ in rows(OPEN)} == KNOWN_OPEN


def test_every_function_exists() -> None:
    assert [name for name in sorted(set(FUNCTION.findall(PAGES))) if not resolves(name)] == []


def test_every_test_exists() -> None:
    missing = [f"{path}::{name}" for path, name in sorted(set(TEST.findall(PAGES))) if name not in named_tests(path)]
    assert missing == []


def test_every_number_in_the_code_stands_on_a_page() -> None:
    scripts = (ROOT / "inventory" / "scripts").rglob("*.lua")
    named = {number for path in (*python_files(*FLOORS), *scripts) for number in NUMBER.findall(path.read_text())}
    assert {"L1", "Q1", "S1"} <= named
    assert sorted(named - set(all_numbers("SLQ"))) == []
