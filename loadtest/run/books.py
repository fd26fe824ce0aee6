"""Opens the books before a flood and closes them after it: audits, record, verdict, exit code.
Never judges before the line is at rest or its deadline has passed.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest.checker.case import not_at_rest
from loadtest.checker.stages import stages_table, write_stages
from loadtest.checker.table import render
from loadtest.checker.verdict import AUDIT_FILE, judge_folder
from loadtest.plan.options import Wanted
from loadtest.record.expectations import write_run
from loadtest.record.files import write_whole
from loadtest.record.history import history_files, is_complete, new_run_folder, runs_folder
from loadtest.record.log_sentences import write_sentences
from loadtest.run.public_logs import check_log
from loadtest.shop_api import ShopApi, ShopError

RECORD_PATIENCE_SECONDS = 90.0
REST_PATIENCE_SECONDS = 60.0
TICK_SECONDS = 0.2


@dataclass(slots=True)
class ClosingBooks:
    """What is known of the shop before the flood, and where the record goes."""

    api: ShopApi
    folder: Path
    expects: frozenset[str]
    sales: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_own_folder: bool = False  # alongside those of other runs
    visits: int = 0  # how many buyers are to come


def open_books(api: ShopApi, *, wanted: Wanted, is_one_of_many: bool, name: str) -> ClosingBooks:
    """Read the sales and their audits before anybody asks; raise ShopError if there is nothing to flood.

    is_one_of_many: the run gets a folder of its own, with `name` in its name, in the one that the operator named. It
    gets one also when they named none.
    """
    if is_one_of_many or wanted.folder is None:
        folder = new_run_folder(wanted.folder or runs_folder(), name=name)
        books = ClosingBooks(api, folder, wanted.expects, is_own_folder=True)
    else:
        books = ClosingBooks(api, wanted.folder, wanted.expects)
    for slug, sale in api.open_sales(wanted.sales).items():
        books.sales[slug] = {
            "sku": sale.get("sku", slug),
            "per_buyer_limit": sale.get("per_buyer_limit", 1),
            "per_network_limit": sale.get("per_network_limit", 0),
            "before": api.audit(slug) if wanted.audit_token else None,
            "after": None,
        }
    return books


def close_books(books: ClosingBooks, *, files: int) -> int:
    """Wait for the clients' record and for the line to be at rest, judge, print; return the exit code."""
    _wait_for_record(books.folder, files=files)
    for slug, book in books.sales.items():
        if book["before"] is not None:
            book["after"] = _audit_at_rest(books.api, slug)
    logs = books.sales.items()
    sentences = [check_log(books.api, slug, audit=book["after"], folder=books.folder) for slug, book in logs]
    write_sentences(books.folder, sentences)
    write_run(books.folder, expects=books.expects, files=files, visits=books.visits, logs=len(sentences))
    write_whole(books.folder / AUDIT_FILE, json.dumps(books.sales, indent=2) + "\n")
    verdict = judge_folder(books.folder)
    print(render(asdict(verdict), colour=sys.stdout.isatty()), flush=True)
    if stages := write_stages(books.folder):
        print("", stages_table(stages), sep="\n", flush=True)
    print("", *sentences, sep="\n", flush=True)
    return 0 if verdict.ok else 1


def _wait_for_record(folder: Path, *, files: int) -> None:
    """Wait until every process has written its record to the end; one that never does is found by the verdict."""
    deadline = time.monotonic() + RECORD_PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if sum(is_complete(path) for path in history_files(folder)) >= files:
            return
        time.sleep(TICK_SECONDS)


def _audit_at_rest(api: ShopApi, slug: str) -> dict[str, Any] | None:
    """Return the audit once nobody waits and nothing is held; after the deadline, as it stands."""
    deadline = time.monotonic() + REST_PATIENCE_SECONDS
    audit: dict[str, Any] | None = None
    while audit is None or time.monotonic() < deadline:
        try:
            audit = api.audit(slug)
        except ShopError as error:
            print(error, file=sys.stderr)
            if time.monotonic() >= deadline:
                return audit
        if audit and not_at_rest(audit) <= 0:
            return audit
        time.sleep(TICK_SECONDS)
    return audit
