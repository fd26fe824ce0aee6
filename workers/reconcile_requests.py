"""Compares every request's record in Redis with its order, and tells Redis what it missed. Never changes an order.
Called by the reconciler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from inventory import line_changes, reconciling
from inventory.database import Cursor
from inventory.faults import fault_point
from inventory.line_changes import Settled
from inventory.outcomes import RANK, WAITING_STATES
from inventory.reconciling import PAGE, Seen
from inventory.redis import Client
from inventory.tickets import Record, record_or_none
from shop import holds
from workers.reconcile_books import order_pages, stock_row
from workers.reconcile_report import ALARM, FOUND, REPAIRED, Drift

# What telling Redis of the order mends; but for the lost, the others are for a person.
TOLD = frozenset({"unknown_order", "record_behind"})
LOST, PLACED_UNKNOWN = "lost", "placed_unknown"


def suspects(
    client: Client, cursor: Cursor, sku: str, *, sale_ids: Sequence[int], breathe: Callable[[], None]
) -> dict[str, str]:
    """Look at every record and order of `sku` once; return request id → what seems wrong with it.

    breathe: called after each page, so that others come to their turn. Raises RedisUnavailable.
    """
    found: dict[str, str] = {}
    for page in _pages(client, cursor, sku, sale_ids):
        found |= {name: kind for name, (kind, _) in judge(client, cursor, sku, page).items()}
        breathe()
    return found


def _pages(client: Client, cursor: Cursor, sku: str, sale_ids: Sequence[int]) -> Iterator[list[str]]:
    """Yield every id of the records, and those of orders and places that have none."""
    for records in reconciling.record_pages(client, sku):
        yield list(records)
    for sale_id in sale_ids:
        for page in order_pages(cursor, sale_id):
            yield _without_record(client, sku, page)
    for page in reconciling.queued_pages(client, sku):
        yield _without_record(client, sku, page)


def _without_record(client: Client, sku: str, page: Sequence[str]) -> list[str]:
    known = reconciling.records_of(client, sku, page)
    return [name for name in page if name not in known]


def judge(client: Client, cursor: Cursor, sku: str, request_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return what is wrong with each of at most PAGE requests (kind, detail), if anything is.

    Redis first, then the database: an outcome is in Redis only after its COMMIT, so an order that is missing then was
    never there (I19).
    """
    if not request_ids:
        return {}
    seen = reconciling.look(client, sku, request_ids)
    orders = {order.request_id: order.record for order in holds.records_now(cursor, request_ids)}
    verdicts = {each.request_id: _verdict(each, orders.get(each.request_id)) for each in seen}
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}


def _verdict(seen: Seen, order: Record | None) -> tuple[str, str] | None:
    record = record_or_none(seen.record)
    if seen.record is not None and record is None:
        return "record_damaged", f"its record is {seen.record!r:.100}"
    if order is None:
        return _verdict_without_order(seen, record)
    if "f" in seen.places:
        return None  # a settler is about to answer it
    if record is None:
        return "unknown_order", f"its order is {order.state}, Redis does not know it"
    if RANK[record.state] < RANK[order.state]:
        return "record_behind", f"its order is {order.state}, Redis says {record.state}"
    if record.state is not order.state:
        return "record_ahead", f"its order is {order.state}, Redis says {record.state}"
    # Not the seq: who asked anew after a loss, while the first ask was being decided, has two; the order's is the one.
    if record[2:5] != order[2:5]:
        return "record_differs", f"its order is {order[2:5]}, Redis says {record[2:5]}"
    return None


def _verdict_without_order(seen: Seen, record: Record | None) -> tuple[str, str] | None:
    if record is None:
        return (PLACED_UNKNOWN, f"it is in {seen.places!r} without a record") if seen.places else None
    if record.state not in WAITING_STATES:
        return "record_ahead", f"it has no order, Redis says {record.state}"
    if not seen.places:
        return LOST, "it waits, and is neither in line nor in flight nor a dead letter"
    return None


def settle_suspects(
    client: Client, cursor: Cursor, sku: str, suspicious: dict[str, str], *, repair: bool
) -> list[Drift]:
    """Look again at what seemed wrong a moment ago, and mend what still is in the same way. Raises RedisUnavailable."""
    drifts: list[Drift] = []
    for page in _chunks(list(suspicious)):
        verdicts = judge(client, cursor, sku, page)
        same = {name: verdict for name, verdict in verdicts.items() if verdict[0] == suspicious[name]}
        mendable = {name for name, (kind, _) in same.items() if kind in TOLD or kind == LOST}
        if repair:
            _mend(client, cursor, sku, {name: same[name][0] for name in mendable})
        done = REPAIRED if repair else FOUND
        drifts += [
            Drift(kind, sku, name, detail, done if name in mendable else ALARM) for name, (kind, detail) in same.items()
        ]
    return drifts


def _mend(client: Client, cursor: Cursor, sku: str, kinds: dict[str, str]) -> None:
    told = [name for name, kind in kinds.items() if kind in TOLD]
    lost = [name for name, kind in kinds.items() if kind == LOST]
    if told:
        # The stock first: told with requests that are newer it would be old, and then it changes nothing.
        figures = stock_row(cursor, sku).figures()
        changed: list[Settled] = holds.records_now(cursor, told)
        line_changes.tell_changes(client, sku, figures=figures, changed=changed)
    if kinds:
        fault_point("in_repair")
    if lost:
        line_changes.requeue(client, sku, lost)


def _chunks(names: Sequence[str]) -> Iterable[Sequence[str]]:
    return (names[start : start + PAGE] for start in range(0, len(names), PAGE))
