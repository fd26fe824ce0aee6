"""Every file says what it is for, no function is longer than a screen, no folder holds more than one can take in."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.rules.sources import FLOORS, ROOT, python_files, tree_of

MAX_FUNCTION_LINES, MAX_TEST_LINES, MAX_MODULES = 40, 60, 15
FILES = [path for path in python_files(*FLOORS, "tests") if path.read_text().strip()]


def long_functions(tree: ast.Module, *, max_lines: int) -> dict[str, int]:
    """Return the lines of each function that has more than `max_lines`."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {one.name: lines for one in functions if (lines := one.end_lineno - one.lineno + 1) > max_lines}


def test_a_long_function_would_be_found() -> None:
    """The control: one line over the limit is named, also inside a class."""
    tree = ast.parse("class A:\n    async def b(self):\n        pass\n        pass\n")
    assert long_functions(tree, max_lines=2) == {"b": 3}
    assert long_functions(tree, max_lines=3) == {}


def full_folders(files: Iterable[Path]) -> list[Path]:
    """Return each folder that holds more than MAX_MODULES of `files`, its `__init__.py` not counted."""
    held = Counter(path.parent for path in files if path.name != "__init__.py")
    return [folder for folder, modules in held.items() if modules > MAX_MODULES]


def test_a_folder_with_too_many_modules_would_be_found() -> None:
    """The control: sixteen are too many, fifteen and the package's own file are not."""
    room = [Path("room") / f"{number}.py" for number in range(MAX_MODULES)]
    assert full_folders([*room, Path("room/__init__.py")]) == []
    assert full_folders([*room, Path("room/one_more.py")]) == [Path("room")]


def test_no_folder_holds_more_modules_than_one_can_take_in() -> None:
    assert full_folders(python_files(*FLOORS)) == []


# Django finds a command by this name; every benchmark has these two; a provider gives a charge, the sandbox keeps one.
SHARED_NAMES = {"Command", "Plan", "Results", "Charge"}


def public_classes(files: Iterable[Path]) -> Counter[tuple[str, str]]:
    """Return how many files of a floor, its name first, define each public class."""
    return Counter(
        (path.relative_to(ROOT).parts[0], node.name)
        for path in files
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def test_no_public_class_has_the_name_of_another_on_its_floor() -> None:
    """The control: the names that are shared on purpose are there, more than once."""
    twice = {name for (_, name), files in public_classes(python_files(*FLOORS)).items() if files > 1}
    assert twice == SHARED_NAMES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_says_what_it_is_for_and_its_functions_fit_on_a_screen(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree)
    is_test = path.is_relative_to(ROOT / "tests")
    assert long_functions(tree, max_lines=MAX_TEST_LINES if is_test else MAX_FUNCTION_LINES) == {}
