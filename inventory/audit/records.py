"""Compares what Redis says of requests with their orders: a part of them at each call, all in turn, or all at once.
Never repairs anything; each page blocks Redis for well under 5 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from django.utils.translation import gettext_noop as _

from inventory.audit.finding import Finding
from inventory.line.snapshot import LineLook
from inventory.postgres import Cursor
from inventory.records import Record, record_or_none
from inventory.redis import Client, keys, run_script
from inventory.states import WAITING_STATES, State

PAGE = 500
SAMPLE = 2_000
LOOKED_UP = 5_000
ORDERS = """
SELECT request_id, state, quantity, sale_id, buyer, terms_version FROM inventory_decision
WHERE stock_id = %(stock_id)s AND request_id = ANY(%(names)s)
"""
# Where each SKU's next sample begins in this process.
_NEXT: dict[str, str] = {}


class Told(NamedTuple):
    """What Redis says of a request: place is where it waits, '' nowhere; record is None when it cannot be read."""

    request_id: str
    record: Record | None
    place: str


class Sample(NamedTuple):
    """Some records, read before the snapshot, of as many as there are; whole: these are all."""

    told: list[Told]
    whole: bool


class Placed(NamedTuple):
    """An order, as far as its record repeats it."""

    state: State
    quantity: int
    sale_id: int
    buyer: str
    terms_version: int | None


def read_sample(client: Client, sku: str, *, records: int, whole: bool) -> Sample:
    """Read the next records of `sku`, all of them when they are few or `whole`. records: how many there are, about.

    Raises RedisUnavailable.
    """
    whole = whole or records <= SAMPLE
    cursor = "0" if whole else _NEXT.get(sku, "0")
    told: dict[str, Told] = {}
    while True:
        cursor, page = _read_page(client, sku, cursor=cursor)
        told.update((each.request_id, each) for each in page)
        if cursor == "0" or (not whole and len(told) >= SAMPLE):
            break
    _NEXT[sku] = cursor
    return Sample(list(told.values()), whole)


def _read_page(client: Client, sku: str, *, cursor: str) -> tuple[str, list[Told]]:
    script_keys = [keys.records(sku), keys.line(sku), keys.in_flight(sku), keys.dead_letters(sku)]
    following, *flat = run_script(client, "audit_page", keys=script_keys, args=[cursor, PAGE])
    parts = iter(flat)
    return str(following), [
        Told(name, record_or_none(text), place) for name, text, place in zip(parts, parts, parts, strict=True)
    ]


def read_orders(cursor: Cursor, *, stock_id: int, sample: Sample) -> dict[str, Placed]:
    """Return the orders of the sample by request id; one that waits has none."""
    names = [told.request_id for told in sample.told]
    orders: dict[str, Placed] = {}
    for start in range(0, len(names), LOOKED_UP):
        cursor.execute(ORDERS, {"stock_id": stock_id, "names": names[start : start + LOOKED_UP]})
        orders |= {name: Placed(State(state), *rest) for name, state, *rest in cursor.fetchall()}
    return orders


def record_findings(
    sample: Sample, orders: Mapping[str, Placed], *, line: LineLook, books: Mapping[str, int | None]
) -> list[Finding]:
    """Compare records and stock figures, read before the snapshot, with the snapshot: it may know more, never less."""
    told = sample.told
    extent = f"{len(told)} records compared{'' if sample.whole else '; the next call goes on behind them'}"
    found = (
        ("I6", _("a request is decided as it was asked"), next(_differ(told, orders), "")),
        (
            "I18",
            _("Redis says nothing that the line or the database does not bear out"),
            next(_unfounded(told, orders), "") or _figures(line, books),
        ),
        ("I19", _("held and paid are said only of what is committed"), next(_promised(told, orders), "")),
    )
    return [Finding(number, name, not text, text or extent) for number, name, text in found]


def _differ(told: Sequence[Told], orders: Mapping[str, Placed]) -> Iterator[str]:
    for name, record, _place in told:
        order = orders.get(name)
        if record is None or order is None:
            continue
        # Not seq: one that Redis lost in flight and let in again was decided at its first place.
        asked, decided = record[2:5], order[1:4]
        if asked != decided:
            yield f"{name} was admitted as (quantity, sale, buyer) {asked} and decided as {decided}"
        elif record.terms_version and record.terms_version != order.terms_version:
            yield f"{name} was admitted under terms {record.terms_version} and decided by {order.terms_version}"


def _promised(told: Sequence[Told], orders: Mapping[str, Placed]) -> Iterator[str]:
    for name, record, _place in told:
        if record and record.state in (State.HELD, State.PAID):
            yield from _ahead(name, record.state, orders.get(name))


def _unfounded(told: Sequence[Told], orders: Mapping[str, Placed]) -> Iterator[str]:
    for name, record, place in told:
        if record is None:
            if not place and name not in orders:
                yield f"the record of {name} is damaged, and it has no order"
        elif record.state in WAITING_STATES:
            if not place and name not in orders:
                yield f"{name} is {record.state}, but in no line, not in flight and not decided"
        elif record.state not in (State.HELD, State.PAID):
            yield from _ahead(name, record.state, orders.get(name))


def _ahead(name: str, state: State, order: Placed | None) -> Iterator[str]:
    """Find a record from which its order cannot have come."""
    if order is None:
        yield f"{name} is told {state}, but has no order"
    elif not _leads_to(state, order.state):
        yield f"{name} is told {state}, but its order is {order.state}"


def _leads_to(state: State, other: State) -> bool:
    return state is other or any(state.may_become(then) and _leads_to(then, other) for then in State)


def _figures(line: LineLook, books: Mapping[str, int | None]) -> str:
    if not line.primed or line.version < (books["version"] or 0):
        return ""
    told = (line.version, line.available, line.held, line.sold)
    known = tuple(books[name] for name in ("version", "available", "held", "sold"))
    return "" if told == known else f"version, available, held, sold are {told} in Redis and {known} in the database"
