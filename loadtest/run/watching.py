"""Begins and ends what accompanies a run alongside its crowd: facts, looks at the shop, the report at the end.
Never lets any of it change the run's verdict. Runs only in the process that sees the whole run.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from pathlib import Path
from typing import Any

import gevent

from loadtest.fault_marks import clear_faults
from loadtest.plan import options as arguments
from loadtest.record.facts import add_facts, write_facts
from loadtest.record.sampling import TIMEOUT_SECONDS, Sampler
from loadtest.report import write_report
from loadtest.run.books import ClosingBooks
from loadtest.shop_api import ShopApi

logger = logging.getLogger(__name__)


def watch(books: ClosingBooks, *, options: argparse.Namespace) -> Sampler:
    """Write down how this run began, and look at the shop until end_watch."""
    wanted = arguments.wanted_from(options)
    api = ShopApi(books.api.host_url, audit_token=wanted.audit_token, timeout_seconds=TIMEOUT_SECONDS)
    sampler = Sampler(api, sales={slug: _goods(book) for slug, book in books.sales.items()}, folder=books.folder)
    clear_faults(books.folder)
    told = {"seed": wanted.seed, "buyers": wanted.buyers, "attempts": wanted.attempts, "sales": list(books.sales)}
    write_facts(books.folder, api=api, wanted={**told, "connections": getattr(options, "num_users", None)})
    gevent.spawn(sampler.watch_figures, sleep=gevent.sleep)
    if wanted.audit_token:
        gevent.spawn(sampler.watch_audits, sleep=gevent.sleep)
    return sampler


def _goods(book: dict[str, Any]) -> dict[str, Any]:
    return {"sku": book["sku"], "total": ((book["before"] or {}).get("counts") or {}).get("total")}


def end_watch(sampler: Sampler | None, *, folder: Path) -> None:
    """Look once more and stop; write the report, unless run_flood does that when this process has ended."""
    try:
        if sampler is not None:
            sampler.look_at_figures()
            sampler.stop()
        add_facts(folder, ended_unix_ns=time.time_ns())
        if arguments.PARENT_VARIABLE not in os.environ:
            print(f"Report: {write_report(folder)}", flush=True)
    except Exception:
        # The verdict is written and stands; without its report it is still the verdict.
        logger.exception("The report of this run could not be written.")
