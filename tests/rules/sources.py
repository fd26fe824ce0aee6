"""Reads the project's own sources: files, syntax trees, imports. Judges nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("workers", "shop", "inventory", "loadtest")
# Server code that measures or mutates the shop from within; it is no part of the crowd.
SERVER_SIDE = ("loadtest.bench", "loadtest.mutants", "loadtest.rivals")


@cache
def python_files(*folders: str) -> tuple[Path, ...]:
    """Return every Python file below `folders`, migrations left out: Django writes those."""
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return tuple(path for path in found if "migrations" not in path.parts)


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of one file."""
    return ast.parse(path.read_text(), filename=str(path))


def module_name(path: Path) -> str:
    """Return the dotted name under which `path` is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Return every module of the four floors by its name."""
    return {module_name(path): path for path in python_files(*FLOORS)}


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield the full name of everything that `tree` imports, wherever the statement stands.

    Of `from a import b` that is a.b: b may be a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield every text of a file that is not a docstring."""
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.value


def modules_in_texts(tree: ast.Module) -> Iterator[str]:
    """Yield every module of the floors that a text of `tree` names by its dotted path, alone or inside a sentence."""
    for name in re.findall(rf"\b(?:{'|'.join(FLOORS)})(?:\.\w+)+", " ".join(texts(tree))):
        parts = name.split(".")
        yield from ({".".join(parts[:end]) for end in range(2, len(parts) + 1)} & modules().keys())


def in_package(name: str, package: str) -> bool:
    """Tell whether the module or name `name` lies in `package`."""
    return name == package or name.startswith(f"{package}.")


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return, of each module of the floors, the modules of the floors that it imports."""
    return {name: frozenset(_own_imports(path)) for name, path in modules().items()}


def _own_imports(path: Path) -> Iterator[str]:
    for name in imported_names(tree_of(path)):
        if name in modules():
            yield name
        elif (parent := name.rpartition(".")[0]) in modules():
            yield parent


def circle_from(start: str, graph: dict[str, frozenset[str]]) -> list[str]:
    """Return a way along `graph` that begins and ends in `start`, or an empty list when there is none."""
    ways, seen = [[start]], set()
    while ways:
        way = ways.pop()
        for following in sorted(graph.get(way[-1], ())):
            if following == start:
                return [*way, start]
            if following not in seen:
                seen.add(following)
                ways.append([*way, following])
    return []
