"""Compares the SKUs that staff asked for, at once and whether or not their time has come; tells what was found.
Never stops at a SKU that fails: staff are told so. A stop leaves the rest to the next process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import structlog
from django.db import Error as DatabaseError

from inventory import reconcile_requests
from inventory.exceptions import RedisUnavailable
from inventory.fault_injection import FaultRaised
from inventory.redis import Client, shards_of
from inventory.telemetry.measures import note_store_errors
from workers.process_loop import Stopped
from workers.reconciler.books import SkuOnSale, skus_on_sale
from workers.reconciler.loop import Reconciler
from workers.reconciler.report import ALARM, Drift, log_drifts

log = structlog.get_logger(__name__)


def compare_asked(reconciler: Reconciler, client: Client, *, between_pages: Callable[[], object] = lambda: None) -> int:
    """Compare each SKU that was asked for; return how many differences were found. Raises RedisUnavailable, Stopped.

    between_pages: called between two pages, for a comparison may take minutes, and others may wait for an answer.
    What staff ask for is one key, so on one shard of a Cluster: while that is away, it waits.
    """
    try:
        return sum(
            _compare_asked(reconciler, client, sku, actor=each["actor"], between_pages=between_pages)
            for sku, each in reconcile_requests.waiting(client).items()
        )
    except RedisUnavailable as error:
        if shards_of(client) is None:
            raise
        log.warning("nothing compared for staff", action="redis_retry", error=repr(error.__cause__))
        return 0


def _compare_asked(
    reconciler: Reconciler, client: Client, sku: str, *, actor: str, between_pages: Callable[[], object]
) -> int:
    running = reconcile_requests.begin(client, sku, actor=actor)

    def go_on() -> None:
        nonlocal running
        between_pages()
        running = reconcile_requests.go_on(client, sku, running=running, actor=actor)

    try:
        drifts, state, detail = _compare(reconciler, sku, go_on)
    except Stopped:
        reconcile_requests.ask(client, sku, actor=actor)
        raise
    reconcile_requests.end(client, sku, running=running, state=state, actor=actor, detail=detail)
    return len(drifts)


def _compare(reconciler: Reconciler, sku: str, between_pages: Callable[[], object]) -> tuple[list[Drift], str, str]:
    """Compare one SKU; return what was found, how it ended, and that in words for staff."""
    try:
        sale_ids = skus_on_sale().get(sku, SkuOnSale([], 0)).sale_ids
        drifts = reconciler.compare(sku, sale_ids=sale_ids, between_pages=between_pages)
    except (RedisUnavailable, Stopped, FaultRaised):
        raise
    except DatabaseError as error:
        note_store_errors("postgresql")
        log.warning("database away or busy", action="reconcile_retry", sku=sku, error=str(error))
        return [], reconcile_requests.FAILED, "the database is away or busy"
    except Exception:  # it would end the next process, which is asked the same, too
        log.exception("not compared", action="reconcile_failed", sku=sku)
        return [], reconcile_requests.FAILED, "a fault of the program, which is in its log"
    log_drifts(drifts)
    return drifts, reconcile_requests.DONE, summary(drifts)


def summary(drifts: list[Drift]) -> str:
    """Return what a comparison found in one line."""
    if not drifts:
        return "nothing differs"
    counts = Counter((drift.done, drift.kind) for drift in drifts)
    told = ", ".join(f"{done} {count} × {kind}" for (done, kind), count in sorted(counts.items()))
    return f"{told}; somebody has to look" if any(drift.done == ALARM for drift in drifts) else told
