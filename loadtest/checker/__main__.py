"""Judges a run from its folder: the clients' record, and the shop's books as they were kept, are now, or are given.
Never starts anything and never repairs anything. Exit code 0: everything holds; 1: it does not; 2: nothing to judge.
Usage: python -m loadtest.checker FOLDER [FOLDER of another machine …] [--host URL | --audit FILE] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from loadtest.checker.table import render
from loadtest.checker.verdict import AUDIT_FILE, as_json, judge_folder
from loadtest.plan.options import AUDIT_TOKEN_VARIABLE
from loadtest.record.expectations import (
    EXPECTATIONS,
    RUN_FILE,
    RunFacts,
    UnknownExpectation,
    expectations_from,
    read_run,
)
from loadtest.record.history import History, history_files, read_history
from loadtest.shop_api import ShopApi, ShopError

HOLDS, BROKEN, NOTHING_TO_JUDGE = 0, 1, 2
Books = dict[str, dict[str, Any]]


class NothingToJudge(Exception):
    """A record or books are missing; the text is one sentence for the operator."""


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.checker",
        description="Judge what clients recorded with the shop's books.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of the run; of each further machine")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--host", default="", help="ask the shop at this address for its audit as it is now")
    source.add_argument("--audit", type=Path, help="a file with what `manage.py audit --json` printed")
    parser.add_argument("--audit-token", default=os.environ.get(AUDIT_TOKEN_VARIABLE, ""), help="for --host")
    parser.add_argument(
        "--expects", help=f"what the run must have shown, with commas between: {', '.join(EXPECTATIONS)}"
    )
    parser.add_argument(
        "--clocks-agree-ms",
        type=float,
        metavar="MS",
        help="your word on how far the times of day of the machines differ; else their times are not compared",
    )
    parser.add_argument("--json", action="store_true", help="print verdict.json instead of the table")
    return parser.parse_args(argv)


def facts_of(options: argparse.Namespace) -> RunFacts:
    """Return what is kept with the run, with what the command line says instead.

    Raises NothingToJudge, UnknownExpectation.
    """
    folder = options.folders[0]
    try:
        facts = read_run(folder)
    except (OSError, TypeError, ValueError) as error:
        raise NothingToJudge(f"{folder / RUN_FILE} says nothing of a run: {error}") from error
    if options.expects is not None:
        words = [word.strip() for word in options.expects.split(",") if word.strip()]
        facts = replace(facts, expects=expectations_from(words))
    if options.clocks_agree_ms is not None:
        facts = replace(facts, wall_error_ms=options.clocks_agree_ms)
    return facts


def books_of(options: argparse.Namespace, *, history: History) -> Books:
    """Return the books of every sale: those kept with the run, their end replaced by the ones asked for.

    Raises NothingToJudge, ShopError.
    """
    path = options.folders[0] / AUDIT_FILE
    books = _read_books(path) if path.exists() else {}
    sales = sorted(books) or sorted({operation.sale for operation in history.operations if operation.sale})
    if options.host:
        return _books_of_shop(ShopApi(options.host, audit_token=options.audit_token), sales=sales, kept=books)
    if options.audit:
        return _books_of_file(options.audit, sales=sales, kept=books)
    if not books:
        raise NothingToJudge(f"{path} does not exist: give the shop's --host, or an --audit.")
    return books


def _read_books(path: Path) -> Books:
    """Read a file with an object for each sale. Raises NothingToJudge."""
    try:
        whole = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise NothingToJudge(f"{path} is no audit: {error}.") from error
    if not isinstance(whole, dict) or not all(isinstance(each, dict) for each in whole.values()):
        raise NothingToJudge(f"{path} is no audit: it must have an object for each sale.")
    return whole


def _books_of_shop(api: ShopApi, *, sales: list[str], kept: Books) -> Books:
    books: Books = {}
    for slug in sales:
        sale = kept.get(slug) or api.sale(slug)
        books[slug] = {"before": None, **sale, "after": api.audit(slug)}
    return books


def _books_of_file(path: Path, *, sales: list[str], kept: Books) -> Books:
    """Read the audits of a file; the limit of a sale that nothing was kept of is left to the books."""
    audits = _read_books(path)
    unknown = {"before": None, "per_buyer_limit": 0}
    return {slug: unknown | kept.get(slug, {}) | {"after": audits.get(slug)} for slug in sales}


def main(argv: list[str] | None = None) -> int:
    """Judge, write verdict.json into the first folder, print; return the exit code."""
    options = parse(sys.argv[1:] if argv is None else argv)
    try:
        facts = facts_of(options)
        # Of several machines, the first may be a master's, which has books and no clients.
        first, *others = options.folders
        for folder in others if others and (first / AUDIT_FILE).exists() else options.folders:
            if not history_files(folder):
                raise NothingToJudge(f"There is no record in {folder}: files of clients are called history-*.")
        history = read_history(*options.folders)
        books = books_of(options, history=history)
        verdict = judge_folder(*options.folders, history=history, books=books, facts=facts)
    except (NothingToJudge, ShopError, UnknownExpectation) as error:
        print(error, file=sys.stderr)
        return NOTHING_TO_JUDGE
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        traceback.print_exc()
        print(f"What is kept of the run, or its books, cannot be read: {error!r}", file=sys.stderr)
        return NOTHING_TO_JUDGE
    print(as_json(verdict) if options.json else render(asdict(verdict), colour=sys.stdout.isatty()))
    return HOLDS if verdict.ok else BROKEN


if __name__ == "__main__":
    sys.exit(main())
