"""The house law: one writer of stock, one maker of keys, scripts with heads. Reads sources only. Needs no server."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from inventory.exceptions import FairdropError
from tests.rules.sources import FLOORS, ROOT, python_files, texts, tree_of

SHARED = sorted((ROOT / "inventory" / "scripts" / "shared").glob("*.lua"))
SCRIPTS = sorted({*(ROOT / "inventory" / "scripts").rglob("*.lua")} - {*SHARED})
MAX_SCRIPTS = 28
HEAD_WORDS = ("KEYS", "ARGV", "Returns", "Stays true")

SQL_WRITE = re.compile(
    r"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE(?:\s+TABLE)?|COPY|MERGE\s+INTO)\s+(?:ONLY\s+)?\"?inventory_stock",
    re.IGNORECASE,
)
STOCK_MODELS = {"Stock", "StockMovement"}
ORM_WRITES = {
    "create", "acreate", "bulk_create", "bulk_update", "update", "aupdate", "delete", "adelete",
    "get_or_create", "update_or_create", "save", "asave",
}  # fmt: skip


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield every docstring of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def names_callers(tree: ast.Module) -> list[str]:
    """Return every docstring that lists its callers: an editor shows them, and such a list is soon wrong."""
    return [text for text in docstrings(tree) if re.search(r"\bcalled\s+(by|through)\b", text, re.IGNORECASE)]


def writes_stock(tree: ast.Module) -> list[str]:
    """Return every place of a file that writes stock or its movements, by SQL or through the ORM."""
    sql = [text.strip().splitlines()[0] for text in texts(tree) if SQL_WRITE.search(text)]
    return sql + [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call) and _writes(node)]


def _writes(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in STOCK_MODELS
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ORM_WRITES:
        return False
    owner = ast.unparse(call.func.value)
    return bool(re.match(r"(models\.)?(Stock|StockMovement)\b", owner) or re.search(r"(stock|movements?)$", owner))


@pytest.mark.parametrize(
    "text",
    [
        "cursor.execute('update inventory_stock set available = 1')",
        "cursor.execute('INSERT INTO\\n  inventory_stockmovement VALUES (1)')",
        "cursor.execute('DELETE FROM inventory_stock')",
        "Stock.objects.filter(sku='a').update(available=1)",
        "Stock.objects.create(sku='a')",
        "StockMovement(kind='load').save()",
        "sale.stock.save()",
        "stock.movements.create(delta=1)",
    ],
)
def test_a_hidden_write_of_stock_would_be_found(text: str) -> None:
    """The control: every way round the ledger is seen."""
    assert writes_stock(ast.parse(text)) != []


@pytest.mark.parametrize("text", ["Stock.objects.get(sku='a')", "cursor.execute('SELECT * FROM inventory_stock')"])
def test_reading_stock_is_no_write(text: str) -> None:
    assert writes_stock(ast.parse(text)) == []


def test_only_the_ledger_writes_stock() -> None:
    found = {relative(path): writes_stock(tree_of(path)) for path in python_files(*FLOORS)}
    assert [path for path, writes in found.items() if writes] == ["inventory/ledger.py"], found


def test_every_redis_key_is_made_in_one_file() -> None:
    in_python = {
        relative(path) for path in python_files(*FLOORS) if any("fd:" in text for text in texts(tree_of(path)))
    }
    in_lua = {relative(path) for path in (*SCRIPTS, *SHARED) if "fd:" in path.read_text()}
    assert in_python | in_lua == {"inventory/redis/keys.py"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_has_a_head(script: Path) -> None:
    lines = script.read_text().removeprefix("#!lua flags=allow-oom\n").splitlines()
    head = lines[: next(number for number, line in enumerate(lines) if not line.startswith("--"))]
    assert head[0].endswith(".")
    assert [word for word in HEAD_WORDS if not any(line.startswith(f"-- {word}") for line in head)] == []


@pytest.mark.parametrize("script", [*SCRIPTS, *SHARED], ids=lambda path: path.stem)
def test_every_script_touches_declared_keys_only(script: Path) -> None:
    calls = re.findall(r"redis\.p?call\('(\w+)'(?:, *([^,)\]]+\]?))?", script.read_text())
    assert calls
    assert [
        call for call in calls if call[0] not in {"TIME", "INFO", "PUBLISH"} and not call[1].startswith("KEYS[")
    ] == []


def too_many(scripts: list[Path]) -> list[Path]:
    """Return those beyond what one can know by heart: a new one takes the place of another, or becomes its mode."""
    return scripts[MAX_SCRIPTS:]


def test_one_script_more_would_be_found() -> None:
    assert too_many([*SCRIPTS[:MAX_SCRIPTS], Path("another.lua")]) == [Path("another.lua")]


def test_there_are_no_more_scripts_than_one_can_know() -> None:
    assert too_many(SCRIPTS) == []


def test_every_script_is_used() -> None:
    named = {text for path in python_files("inventory") for text in texts(tree_of(path))}
    assert [script.stem for script in SCRIPTS if script.stem not in named] == []


def test_every_shared_text_is_used_by_several_scripts_and_says_what_it_does() -> None:
    texts_of_scripts = [script.read_text() for script in SCRIPTS]
    for path in SHARED:
        assert sum(f"\n-- Shared: {path.stem}\n" in text for text in texts_of_scripts) > 1, path
        assert path.read_text().startswith("-- "), path
    named = {name for text in texts_of_scripts for name in re.findall(r"^-- Shared: (.*)$", text, flags=re.MULTILINE)}
    assert named == {path.stem for path in SHARED}


def test_a_list_of_callers_would_be_found() -> None:
    """The control: at the head of a file and of a function, also across a line break; in code it is none."""
    head = '"""Purpose. Called by pytest."""\n'
    function = 'def f():\n    """Purpose; called\n    through the view."""\n    "called by"\n'
    assert len(names_callers(ast.parse(head + function))) == 2
    assert names_callers(ast.parse('"""Where the proxy was called from."""')) == []


def test_no_docstring_names_its_callers() -> None:
    files = (*python_files(*FLOORS, "tests"), ROOT / "manage.py")
    found = {relative(path): names_callers(tree_of(path)) for path in files}
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_every_error_knows_its_code_and_status() -> None:
    errors, found = [FairdropError], []
    while errors:
        errors += (error := errors.pop()).__subclasses__()
        if not (isinstance(error.code, str) and re.fullmatch("[a-z_]+", error.code) and 400 <= error.status <= 599):
            found.append(error.__name__)
    assert found == []
