"""Shows the shop live in Locust's web page: a tab with a row a sale, a page of its own, both as JSON and CSV; the runs.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Blueprint, Response, has_request_context, jsonify, render_template, request, send_file
from werkzeug.security import safe_join

from loadtest.record.history import runs_folder
from loadtest.record.sampling import Sampler, live_rows
from loadtest.report.index import REPORT_FILE, index_of

if TYPE_CHECKING:
    from locust.env import Environment

Guard = Callable[[Callable[..., Any]], Callable[..., Any]]
Sent = Response | tuple[str, HTTPStatus]
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
STOPPED_EARLY = "stopped early, not judged"
# What a spreadsheet takes for a formula, also after spaces, newlines and signs that nobody sees; and what it cuts off.
FORMULA = re.compile(r"[\s\x00-\x20\u200b-\u200f\ufeff]*[=+\-@＝＋－＠]|[\t\r\n]")


class LastRun(NamedTuple):
    """The run that is under way, or the last one."""

    sampler: Sampler | None = None
    folder: Path | None = None
    is_early: bool = False  # somebody stopped it


def is_stopped_by_hand() -> bool:
    """Say whether what runs now was asked for by somebody who pressed Stop in the page."""
    return has_request_context() and request.path.endswith("/stop")


def add_to(environment: Environment, *, last: Callable[[], LastRun]) -> None:
    """Add tab, page and files to the web page of this Locust, if it has one; last: returns the last run."""
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
            {"href": f"./{KEY}/runs/", "title": "List all runs with their Fairdrop reports"},
        ],
    }
    web_ui.app.after_request(lambda response: _with_ours(response, last=last()))
    prefix = str(getattr(environment.parsed_options, "web_base_path", None) or "").rstrip("/")
    pages = _pages(environment, guarded=web_ui.auth_required_if_enabled, last=last)
    web_ui.app.register_blueprint(pages, url_prefix=f"{prefix}/{KEY}")


def table_rows(last: LastRun) -> list[dict[str, Any]]:
    """Return the rows of the tab, in words."""
    rows = [
        {key: _shown(row[key]) for key in COLUMNS} | {"audit": AUDIT_WORDS[row["audit"]]}
        for row in live_rows(last.sampler)
    ]
    return [row | {"audit": STOPPED_EARLY} for row in rows] if last.is_early else rows


def _harmless(value: Any) -> Any:
    """Return a cell that a spreadsheet reads as text: the shop that is flooded may be anybody's."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def _shown(value: Any) -> Any:
    return NOT_READ if value is None else value


def _with_ours(response: Response, *, last: LastRun) -> Response:
    """Add the rows to the answer that Locust's own page asks for every two seconds; say what Stop did."""
    if request.path.endswith("/stats/requests") and response.is_json:
        known = response.get_json()
        response.set_data(json.dumps({**known, "extended_stats": [{"key": KEY, "data": table_rows(last)}]}))
    elif request.path.endswith("/stop") and response.is_json and last.is_early:
        response.set_data(json.dumps({**response.get_json(), "message": STOPPED_EARLY}))
    return response


def _pages(environment: Any, *, guarded: Guard, last: Callable[[], LastRun]) -> Blueprint:
    """Return the live page, its files, and the reports; they ask for a login when Locust does."""
    pages = Blueprint(KEY, __name__, template_folder=str(HERE))

    @pages.get("")
    @guarded
    def live() -> str:
        return render_template("web_tab.html", style=(HERE.parent / "report" / "page.css").read_text())

    @pages.get("/sales.json")
    @guarded
    def sales_json() -> Response:
        seen = last()
        state = STOPPED_EARLY if seen.is_early else environment.runner.state
        gaps = seen.sampler.gaps if seen.sampler else 0
        return jsonify({"state": state, "gaps": gaps, "sales": live_rows(seen.sampler)})

    @pages.get("/sales.csv")
    @guarded
    def sales_csv() -> Response:
        text = io.StringIO()
        table = csv.DictWriter(text, fieldnames=COLUMNS)
        table.writeheader()
        table.writerows({key: _harmless(value) for key, value in row.items()} for row in table_rows(last()))
        return Response(text.getvalue(), mimetype="text/csv")

    _add_reports(pages, environment, guarded=guarded, last=last)
    return pages


def _add_reports(pages: Blueprint, environment: Any, *, guarded: Guard, last: Callable[[], LastRun]) -> None:
    """Add the report of the last run, the list of all runs, and the report of each."""

    @pages.get("/report")
    @guarded
    def report() -> Sent:
        folder = last().folder
        return _sent(folder / REPORT_FILE if folder else None)

    @pages.get("/runs/")
    @guarded
    def runs() -> str:
        return index_of(_root(environment))

    @pages.get(f"/runs/<name>/{REPORT_FILE}")
    @guarded
    def report_of(name: str) -> Sent:
        path = safe_join(str(_root(environment)), name, REPORT_FILE)
        return _sent(Path(path) if path else None)


def _root(environment: Any) -> Path:
    """Return the folder of all runs of this page."""
    return Path(environment.parsed_options.history or runs_folder())


def _sent(path: Path | None) -> Sent:
    if path is None or not path.exists():
        return "No run has ended yet.", HTTPStatus.NOT_FOUND
    return send_file(path.resolve())
