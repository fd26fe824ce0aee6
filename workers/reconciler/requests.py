"""Compares every request's record in Redis with its order, and tells Redis what it missed. Never changes an order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django.db import connection

from inventory.fault_injection import fault_point
from inventory.line import repair as line_repair
from inventory.line import writing
from inventory.line.repair import PAGE, Seen
from inventory.line.writing import Settled
from inventory.postgres import Cursor
from inventory.records import Record, asked_in, record_or_none
from inventory.redis import Client
from inventory.states import RANK, STATE_OF_LETTER, WAITING_STATES
from shop.orders import holds
from workers.reconciler.books import OrdersThere, order_pages, stock_row
from workers.reconciler.report import ALARM, FOUND, REPAIRED, Drift
from workers.reconciler.units import LiveTally

# What telling Redis of the order mends; but for the lost, the others are for a person.
TOLD = frozenset({"unknown_order", "record_behind"})
WORDS = {letter: state.value for letter, state in STATE_OF_LETTER.items()}
LOST, PLACED_UNKNOWN = "lost", "placed_unknown"


def suspects(
    client: Client, sku: str, *, sale_ids: Sequence[int], tally: LiveTally
) -> Iterator[tuple[int, dict[str, str]]]:
    """Look at every record and order of `sku` once; yield for each page its size, and request id → what seems wrong.

    Orders are read one by one only when some were not met by their records. Raises RedisUnavailable.
    """
    orders = OrdersThere(sale_ids)
    for page in line_repair.record_pages(client, sku):
        asked = {name: asked_in(text) for name, text in page.items()}
        for each in asked.values():
            tally.add(each)
        yield len(page), _kinds(client, sku, orders.differing({name: _text(each) for name, each in asked.items()}))
    for names in _names_beside(client, sku, sale_ids=() if orders.all_met else sale_ids):
        yield len(names), _kinds(client, sku, _without_record(client, sku, names))


def _text(asked: tuple[str, str, str, str] | None) -> str:
    """Return what an order must say like its record; of a damaged one what no order says."""
    if asked is None or "," in asked[3]:
        return "damaged"
    return f"{WORDS[asked[0]]}|{asked[1]}|{asked[2]}|{asked[3]}"


def _names_beside(client: Client, sku: str, *, sale_ids: Sequence[int]) -> Iterator[list[str]]:
    """Yield the ids of all orders of `sale_ids`, and of everybody in line: some may have no record."""
    for sale_id in sale_ids:
        yield from order_pages(sale_id)
    yield from line_repair.queued_pages(client, sku)


def _kinds(client: Client, sku: str, request_ids: Sequence[str]) -> dict[str, str]:
    with connection.cursor() as cursor:
        judged = [judge(client, cursor, sku, names) for names in _chunks(request_ids)]
    return {name: kind for verdicts in judged for name, (kind, _) in verdicts.items()}


def _without_record(client: Client, sku: str, page: Sequence[str]) -> list[str]:
    known = line_repair.records_of(client, sku, page)
    return [name for name in page if name not in known]


def judge(client: Client, cursor: Cursor, sku: str, request_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return what is wrong with each of at most PAGE requests (kind, detail), if anything is.

    Redis first, then the database: an outcome is in Redis only after its COMMIT, so an order that is missing then was
    never there (I19).
    """
    if not request_ids:
        return {}
    seen = line_repair.look(client, sku, request_ids)
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
    # Not the seq: a buyer who asked again after a loss, while the first ask was decided, has two; the order's counts.
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


def settle_suspects(client: Client, sku: str, suspicious: dict[str, str], *, repair: bool) -> list[Drift]:
    """Look again at what seemed wrong a moment ago, and mend what still is in the same way. Raises RedisUnavailable."""
    drifts: list[Drift] = []
    for page in _chunks(list(suspicious)):
        with connection.cursor() as cursor:
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
        # Read the stock first: when the requests are newer than its figures, Redis ignores an older version.
        figures = stock_row(cursor, sku).figures()
        changed: list[Settled] = holds.records_now(cursor, told)
        writing.publish_changes(client, sku, figures=figures, changed=changed)
    if kinds:
        fault_point("in_repair")
    if lost:
        writing.requeue(client, sku, lost)


def _chunks(names: Sequence[str]) -> Iterable[Sequence[str]]:
    return (names[start : start + PAGE] for start in range(0, len(names), PAGE))
