"""Begins and ends what accompanies a run alongside its crowd: facts, looks at the shop, the report at the end.
Never lets any of it change the run's verdict. Runs only in the process that sees the whole run.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from typing import Any

import gevent

from loadtest.fault_marks import clear_faults
from loadtest.plan import options as arguments
from loadtest.record.expectations import write_run
from loadtest.record.facts import write_facts
from loadtest.record.sampling import TIMEOUT_SECONDS, Sampler
from loadtest.report import write_report
from loadtest.report.index import write_index, write_unjudged
from loadtest.run.books import ClosingBooks
from loadtest.shop_api import ShopApi

logger = logging.getLogger(__name__)


def watch(books: ClosingBooks, *, options: argparse.Namespace, kinds: dict[str, int] | None) -> Sampler:
    """Write down how this run began, and look at the shop until end_watch. kinds: who comes, by weight, when chosen."""
    wanted = arguments.wanted_from(options)
    api = ShopApi(books.api.host_url, audit_token=wanted.audit_token, timeout_seconds=TIMEOUT_SECONDS)
    sampler = Sampler(api, sales={slug: _goods(book) for slug, book in books.sales.items()}, folder=books.folder)
    clear_faults(books.folder)
    told = {
        "seed": wanted.seed,
        "buyers": wanted.buyers,
        "attempts": wanted.attempts,
        "sales": list(books.sales),
        "kinds": kinds,
    }
    write_facts(books.folder, api=api, wanted={**told, "connections": getattr(options, "num_users", None)})
    gevent.spawn(sampler.watch_figures, sleep=gevent.sleep)
    if wanted.audit_token:
        gevent.spawn(sampler.watch_audits, sleep=gevent.sleep)
    return sampler


def _goods(book: dict[str, Any]) -> dict[str, Any]:
    return {"sku": book["sku"], "total": ((book["before"] or {}).get("counts") or {}).get("total")}


def end_watch(sampler: Sampler | None, *, books: ClosingBooks) -> None:
    """Look once more and stop; write the report, unless run_flood does that when this process has ended."""
    try:
        if sampler is not None:
            sampler.look_at_figures()
            sampler.stop()
        write_run(books.folder, ended_unix_ns=time.time_ns())
        if arguments.PARENT_VARIABLE not in os.environ:
            print(f"Report: {write_report(books.folder)}", flush=True)
            _list(books)
    except Exception:
        # The verdict is written and stands; without its report it is still the verdict.
        logger.exception("The report of this run could not be written.")


def end_unjudged(sampler: Sampler | None, *, books: ClosingBooks) -> None:
    """Look no more; write that the run was stopped early, and what its clients had counted."""
    try:
        if sampler is not None:
            sampler.stop()
        write_run(books.folder, ended_unix_ns=time.time_ns(), stopped_early=True)
        print(f"The run was stopped early, not judged: {write_unjudged(books.folder)}", flush=True)
        _list(books)
    except Exception:
        logger.exception("What is left of this run could not be written.")


def _list(books: ClosingBooks) -> None:
    """Put the run into the list of those that have a folder of their own."""
    if books.is_own_folder:
        print(f"All runs: {write_index(books.folder.parent)}", flush=True)
