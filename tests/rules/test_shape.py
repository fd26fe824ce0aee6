"""Every file says what it is for, and no function is longer than a screen."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.rules.sources import FLOORS, ROOT, python_files

LONGEST_FUNCTION_LINES = 40
FILES = [path for path in python_files(*FLOORS) if path.read_text().strip()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_begins_with_its_purpose(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_fit_on_a_screen(path: Path) -> None:
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    too_long = {
        one.name: lines for one in functions if (lines := one.end_lineno - one.lineno + 1) > LONGEST_FUNCTION_LINES
    }
    assert too_long == {}
