"""Shows the shop live in Locust's web page: a tab with a row a sale, a page of its own, and both as JSON and CSV.
Never asks the shop itself: it shows what the run's sampler saw last.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, jsonify, render_template, request, send_file

from loadtest.plan import options
from loadtest.record.sampling import Sampler, live_rows
from loadtest.report import REPORT_FILE

if TYPE_CHECKING:
    from locust.env import Environment

Guard = Callable[[Callable[[], Any]], Callable[[], Any]]
HERE = Path(__file__).resolve().parent
KEY = "fairdrop"
COLUMNS = {
    "sku": "SKU",
    "total": "Units",
    "free": "Free",
    "held": "Held",
    "sold": "Sold",
    "line": "In line",
    "decided": "Decided",
    "oversold": "Oversold",
    "audit": "Audit",
}
AUDIT_WORDS = {None: "not read yet", True: "holds", False: "broken"}
NOT_READ = "–"
# What a spreadsheet takes for a formula, also after spaces, newlines and signs that nobody sees; and what it cuts off.
FORMULA = re.compile(r"[\s\x00-\x20\u200b-\u200f\ufeff]*[=+\-@＝＋－＠]|[\t\r\n]")


def add_to(environment: Environment, *, sampler: Callable[[], Sampler | None]) -> None:
    """Add tab, page and files to the web page of this Locust, if it has one; sampler: returns that of the last run."""
    web_ui = environment.web_ui
    if web_ui is None or web_ui.app is None:
        return
    structure = [{"key": key, "title": title} for key, title in COLUMNS.items()]
    # Locust keeps what it does not know itself, so this is said once.
    web_ui.template_args |= {
        "extended_tabs": [{"title": "Fairdrop", "key": KEY}],
        "extended_tables": [{"key": KEY, "structure": structure}],
        "extended_csv_files": [
            {"href": f"./{KEY}/sales.csv", "title": "Download Fairdrop sales CSV"},
            {"href": f"./{KEY}", "title": "Watch the sales live"},
            {"href": f"./{KEY}/report", "title": "Open the Fairdrop report of the last run"},
        ],
    }
    web_ui.app.after_request(lambda response: _with_rows(response, rows=table_rows(sampler())))
    prefix = str(getattr(environment.parsed_options, "web_base_path", None) or "").rstrip("/")
    pages = _pages(environment, guarded=web_ui.auth_required_if_enabled, sampler=sampler)
    web_ui.app.register_blueprint(pages, url_prefix=f"{prefix}/{KEY}")


def table_rows(sampler: Sampler | None) -> list[dict[str, Any]]:
    """Return the rows of the tab, in words."""
    return [
        {key: AUDIT_WORDS[row[key]] if key == "audit" else _shown(row[key]) for key in COLUMNS}
        for row in live_rows(sampler)
    ]


def _harmless(value: Any) -> Any:
    """Return a cell that a spreadsheet reads as text: the shop that is flooded may be anybody's."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def _shown(value: Any) -> Any:
    return NOT_READ if value is None else value


def _with_rows(response: Response, *, rows: list[dict[str, Any]]) -> Response:
    """Add the rows to the answer that Locust's own page asks for every two seconds."""
    if request.path.endswith("/stats/requests") and response.is_json:
        known = response.get_json()
        response.set_data(json.dumps({**known, "extended_stats": [{"key": KEY, "data": rows}]}))
    return response


def _pages(environment: Any, *, guarded: Guard, sampler: Callable[[], Sampler | None]) -> Blueprint:
    """Return the live page and its files; they ask for a login when Locust does."""
    pages = Blueprint(KEY, __name__, template_folder=str(HERE))

    @pages.get("")
    @guarded
    def live() -> str:
        return render_template("web_tab.html", style=(HERE.parent / "report" / "page.css").read_text())

    @pages.get("/sales.json")
    @guarded
    def sales_json() -> Response:
        seen = sampler()
        return jsonify({"state": environment.runner.state, "gaps": seen.gaps if seen else 0, "sales": live_rows(seen)})

    @pages.get("/sales.csv")
    @guarded
    def sales_csv() -> Response:
        text = io.StringIO()
        table = csv.DictWriter(text, fieldnames=COLUMNS)
        table.writeheader()
        table.writerows({key: _harmless(value) for key, value in row.items()} for row in table_rows(sampler()))
        return Response(text.getvalue(), mimetype="text/csv")

    @pages.get("/report")
    @guarded
    def report() -> Response | tuple[str, HTTPStatus]:
        path = options.wanted_from(environment.parsed_options).folder.resolve() / REPORT_FILE
        return send_file(path) if path.exists() else ("No run has ended yet.", HTTPStatus.NOT_FOUND)

    return pages
