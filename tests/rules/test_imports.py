"""Imports run down only: workers → shop → inventory, and the crowd outside knows none of them. Needs no server."""

from __future__ import annotations

import ast
from collections.abc import Collection

import pytest

from tests.rules.sources import (
    FLOORS,
    ROOT,
    SERVER_SIDE,
    circle_from,
    imported_names,
    imports,
    in_package,
    modules,
    modules_in_texts,
    python_files,
    tree_of,
)

# What a floor may import alongside itself.
BELOW = {"inventory": set(), "shop": {"inventory"}, "workers": {"shop", "inventory"}, "loadtest": set()}


# Texts that name a module above and import nothing: the programs that the demo starts as a person at a terminal would,
# and the names of loggers.
NO_IMPORTS = {
    ("workers.demo.run", "loadtest.run_flood"),
    ("workers.demo.run", "loadtest.visitors"),
    ("shop.logs", "workers.management"),
    ("shop.logs", "workers.reconciler"),
    ("shop.logs", "workers.reconciler.retention"),
}


def floor_of(name: str) -> str:
    return name.partition(".")[0]


def is_server_side(name: str) -> bool:
    return any(in_package(name, package) for package in SERVER_SIDE)


def importers_of(package: str, *folders: str) -> set[str]:
    """Return the files below `folders` that import `package`."""
    return {
        str(path.relative_to(ROOT))
        for path in python_files(*folders)
        if any(in_package(name, package) for name in imported_names(tree_of(path)))
    }


def package_of(name: str, *, floors: Collection[str] = FLOORS) -> str:
    """Return the package of a module; one that lies right at the top of a floor stands for itself."""
    package = name.rpartition(".")[0]
    return name if package in floors or modules()[name].name == "__init__.py" else package


def package_imports(*, floors: Collection[str] = FLOORS) -> dict[str, frozenset[str]]:
    """Return which other packages the modules of each package import."""
    found: dict[str, set[str]] = {package_of(name, floors=floors): set() for name in modules()}
    for name in modules():
        found[package_of(name, floors=floors)] |= {package_of(other, floors=floors) for other in imports()[name]}
    return {package: frozenset(others - {package}) for package, others in found.items()}


def test_imports_are_seen_at_all() -> None:
    """The control: well-known imports of each kind are found."""
    assert {"inventory.ledger", "shop.order_rows", "inventory.allocation"} <= imports()["workers.settlement"]
    assert "inventory.redis.keys" in imports()["inventory.locks.lock"]
    text = "import a.b\ndef late():\n    from c import d, e\n"
    assert list(imported_names(ast.parse(text))) == ["a.b", "c.d", "c.e"]


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_imports_only_what_lies_below(floor: str) -> None:
    wrong = {
        f"{name} imports {other}"
        for name in modules()
        if floor_of(name) == floor and not is_server_side(name)
        for other in imports()[name]
        if floor_of(other) not in BELOW[floor] | {floor}
    }
    assert wrong == set()


def test_a_module_named_in_a_text_would_be_found() -> None:
    """The control: a dotted name is seen alone, inside a sentence and before a class; a host or a docstring is none."""
    text = '"""See loadtest.mutants."""\nA = ["loadtest.rivals", "python -m loadtest.report X"]\n'
    found = set(modules_in_texts(ast.parse(text + 'B = "shop.models.Sale", "https://shop.example"\n')))
    assert found == {"loadtest.rivals", "loadtest.report", "shop.models"}


def test_no_text_names_a_module_that_lies_above() -> None:
    """A text that Django or a process imports by is an import that no type checker sees."""
    wrong = {
        (name, other)
        for name, path in modules().items()
        if (floor := floor_of(name)) != "loadtest"
        for other in modules_in_texts(tree_of(path))
        if floor_of(other) not in BELOW[floor] | {floor}
    }
    assert wrong == NO_IMPORTS


def test_the_crowd_does_not_lean_on_the_code_that_measures_from_within() -> None:
    wrong = {
        name: sorted(filter(is_server_side, imports()[name]))
        for name in modules()
        if floor_of(name) == "loadtest" and not is_server_side(name)
    }
    assert [name for name, found in wrong.items() if found] == []


def test_nobody_but_workers_and_tests_imports_workers() -> None:
    outside = importers_of("workers", "inventory", "shop")
    within = ("loadtest/bench/", "loadtest/mutants/")
    crowd = {path for path in importers_of("workers", "loadtest") if not path.startswith(within)}
    assert outside | crowd == set()


def test_a_circle_would_be_found() -> None:
    """The control: a circle of three is named, a tree is not."""
    assert circle_from("a", {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a")}) == ["a", "b", "c", "a"]
    assert circle_from("a", {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset()}) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = [way for name in modules() if (way := circle_from(name, imports()))]
    assert found == []


def test_no_packages_import_each_other_in_a_circle() -> None:
    """The control: with all that lies at the top of a floor in one package there is one."""
    graph = package_imports()
    assert [way for package in graph if (way := circle_from(package, graph))] == []
    assert circle_from("shop", package_imports(floors=())) != []


def test_one_file_opens_redis() -> None:
    # The embedded server's starter only asks a child it has just started whether it answers.
    assert importers_of("redis", *FLOORS, "tests") - {"workers/embedded/valkey.py"} == {"inventory/redis/client.py"}


def test_only_the_load_test_knows_locust() -> None:
    assert importers_of("locust", "inventory", "shop", "workers") == set()
    assert importers_of("locust", "loadtest") != set()
