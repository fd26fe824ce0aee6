"""Reads the admissions of a sale that are not decided yet, in the order of the line. Never changes a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from inventory.records import STANDBY_SCORE, Record, record_or_none
from inventory.redis import Client, keys, run_script, run_script_each

log = structlog.get_logger(__name__)

MAX_A_CALL = 1000


class Since(NamedTuple):
    """What is asked: the admissions of a sale with a higher seq than this one."""

    sku: str
    sale_id: int
    seq: int


class Admitted(NamedTuple):
    """What the line knows: requests (id, record) of one moment. last: the ordinal given last, None when not primed.

    base: ordinals went on above it when Redis was last found empty or started again. is_whole: there are no more.
    unread: how many records could not be read.
    """

    last: int | None
    base: int
    is_whole: bool
    requests: list[tuple[str, Record]]
    unread: int = 0


def admitted_each(client: Client, asked: Sequence[Since]) -> list[Admitted | None]:
    """Return the next admissions of each sale, None for one whose server is away, or whose ordinals are damaged.

    Raises RedisUnavailable.
    """
    if not asked:
        return []
    replies = run_script_each(client, "admitted_since", [(_keys(each.sku), _args(each)) for each in asked])
    return [
        None if isinstance(reply, Exception) else _admitted(reply, asked=each, sale_id=each.sale_id)
        for each, reply in zip(asked, replies, strict=True)
    ]


def all_admitted(client: Client, asked: Since) -> Admitted | None:
    """Return every admission after that seq, read page by page, so not of one moment. Raises RedisUnavailable.

    None when Redis was found empty, or its ordinals moved, between two pages: then the first ones may be of a line that
    is lost by now, and would be taken for what has survived. None also when the ordinals are damaged, or a page is so
    much so that nobody can say where the next one begins.
    """
    first = page = _page(client, asked)
    if first is None or page is None:
        return None
    found = dict(page.requests)
    while not page.is_whole:
        # A page may end at another place in each of the three sets: go on after the first of their ends.
        end = _first_end(page)
        if end is None:
            log.error("too many records cannot be read", action="log_failed", sku=asked.sku, sale=asked.sale_id)
            return None
        page = _page(client, asked._replace(seq=end))
        if page is None or (page.last is None, page.base) != (first.last is None, first.base):
            return None
        found |= dict(page.requests)
    own = [(name, record) for name, record in found.items() if record.sale_id == asked.sale_id]
    return page._replace(requests=own)


def _page(client: Client, asked: Since) -> Admitted | None:
    """Return the next admissions of every sale of the SKU: where the next page begins is decided by all of them."""
    reply = run_script(client, "admitted_since", keys=_keys(asked.sku), args=_args(asked))
    return _admitted(reply, asked=asked, sale_id=None)


def _first_end(page: Admitted) -> int | None:
    seqs = sorted(record.seq for _, record in page.requests)
    # Those that could not be read may all be of the set that ends first: it then has so many fewer of these.
    sure = min(len(seqs), MAX_A_CALL - page.unread)
    return seqs[sure - 1] if sure > 0 else None


def _keys(sku: str) -> list[str]:
    return [make(sku) for make in (keys.line, keys.in_flight, keys.aside, keys.records, keys.sales)]


def _args(asked: Since) -> list[str | int]:
    return [asked.sale_id, asked.seq, MAX_A_CALL, STANDBY_SCORE]


def _admitted(flat: list[str], *, asked: Since, sale_id: int | None) -> Admitted | None:
    ordinals, more, *rest = flat
    try:
        last, base = (int(each) for each in ordinals.split("|")[:2]) if ordinals else (None, 0)
    except ValueError:
        # One sale's damage never stops the others. The next ask, which this field refuses, primes the sale again.
        log.error("the ordinals of a sale are damaged", action="log_failed", sku=asked.sku, sale=asked.sale_id)
        return None
    records = [(name, record_or_none(text)) for name, text in zip(rest[::2], rest[1::2], strict=True)]
    requests = [(name, record) for name, record in records if record and sale_id in (None, record.sale_id)]
    unread = sum(record is None for _, record in records)
    return Admitted(last, base, more == "0", requests, unread)
