"""Every CSV that leaves the shop or a flood is text for a spreadsheet, never a formula. Needs no server."""

from __future__ import annotations

import csv
import io
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from loadtest.run import web_tab
from shop.staff import stock
from shop.staff.lists import csv_export
from tests.rules.sources import FLOORS, ROOT, python_files

FORMULAS = (
    '=HYPERLINK("http://evil.example","x")', "+1+1", "-2+3", "@SUM(A1)", " =1", "\n=1", " \r\n\t@x", "\t1", "\r1",
    "\n1", "\ufeff=1", "\u200b=1", "\u00a0-1", "\x00=1", "＝1", "　＋1", "－1", "＠x",
)  # fmt: skip
HARMLESS = ("lantern-1", "a=1", "5", "", " plain words", "–", None, -5, 0.5)


def stock_csv(value: object) -> str:
    """Return the staff's CSV of stock with `value` in a cell, as it was read back."""
    row: Any = types.SimpleNamespace(cells=lambda: {"sku": value})
    return list(csv.reader(io.StringIO(stock._csv([row]).content.decode(), newline="")))[1][0]


def flood_csv(value: object) -> str:
    """Return Locust's CSV of sales with `value` in a cell, as it was read back."""
    app = Flask(__name__)
    shown = dict.fromkeys(web_tab.COLUMNS, 0) | {"sku": value, "audit": True}
    sampler: Any = types.SimpleNamespace()
    environment: Any = types.SimpleNamespace()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web_tab, "live_rows", lambda _sampler: [shown])
        pages = web_tab._pages(environment, guarded=lambda view: view, last=lambda: web_tab.LastRun(sampler))
        app.register_blueprint(pages, url_prefix="/fairdrop")
        text = app.test_client().get("/fairdrop/sales.csv").get_data(as_text=True)
    return list(csv.reader(io.StringIO(text, newline="")))[1][0]


def streamed(value: object) -> str:
    """Return a streamed table, which orders and revenue are, with `value` in a cell, as it was read back."""
    answer: Any = csv_export.streamed_csv("table", ["column"], [[value]])
    return list(csv.reader(io.StringIO(b"".join(answer.streaming_content).decode(), newline="")))[1][0]


EXPORTS = pytest.mark.parametrize("export", [stock_csv, streamed, flood_csv])


@EXPORTS
@pytest.mark.parametrize("value", FORMULAS)
def test_a_cell_that_would_be_a_formula_is_text(export: Callable[[object], str], value: str) -> None:
    assert export(value) == f"'{value}"


@EXPORTS
@pytest.mark.parametrize("value", HARMLESS)
def test_the_control_every_other_cell_stays_as_it_is(export: Callable[[object], str], value: object) -> None:
    shown = web_tab.NOT_READ if value is None and export is flood_csv else value
    assert export(value) == ("" if shown is None else str(shown))


def test_no_formula_begins_with_a_letter_or_a_digit_of_any_script() -> None:
    """Cells that do are not looked at more closely."""
    alnum = [char for char in map(chr, range(sys.maxunicode + 1)) if char.isalnum()]
    assert [char for char in alnum if csv_export.FORMULA.match(f"{char}=1")] == []
    assert len(alnum) > 100_000


def test_these_are_all_that_write_csv() -> None:
    """Who adds an export adds it above. Locust writes its own CSV, of names that stand in our own code."""
    writers = {
        str(path.relative_to(ROOT))
        for path in python_files(*FLOORS)
        if "csv.writer(" in path.read_text() or "csv.DictWriter(" in path.read_text()
    }
    assert writers == {"shop/staff/lists/csv_export.py", "loadtest/run/web_tab.py"}
