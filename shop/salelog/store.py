"""Reads and grows the logs in the database: leaves, tiles, checkpoint and state in one transaction, the caller's.
Never changes a byte that was published (a trigger sees to it).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from django.db import connection
from django.db.models import Q

from inventory.exceptions import FairdropError, RequestNotFound, SaleNotFound
from inventory.postgres import Cursor
from shop.salelog.models import SaleLog, Tile
from shop.salelog.notes import Checkpoint, read_note, sign
from shop.salelog.publisher import LogState, leaf_text
from shop.salelog.tree import ENTRIES, HASH_BYTES, WIDTH, WIDTH_BITS, Tree, grow

LENGTH_BYTES = 2
MAX_LEAF_BYTES = 60_000
SAVE_TILES = """
INSERT INTO salelog_tile AS t (sale_id, level, number, width, data, ordinal)
SELECT %(sale_id)s, * FROM unnest(%(levels)s::int[], %(numbers)s::bigint[], %(widths)s::int[], %(datas)b::bytea[],
                                  %(ordinals)s::bigint[])
ON CONFLICT (sale_id, level, number) DO UPDATE
SET width = EXCLUDED.width, data = EXCLUDED.data, ordinal = EXCLUDED.ordinal
"""
SAVE_LOG = """
UPDATE salelog_salelog
SET size = %(size)s, at_us = %(at_us)s, cursor = %(cursor)s, checkpoint = %(checkpoint)s, is_open = %(is_open)s,
    is_closed = %(is_closed)s, units = %(units)s, ordinal = %(ordinal)s, seq = %(seq)s,
    versions = %(versions)s::jsonb, lost = %(lost)s::jsonb, restored = %(restored)s::jsonb
WHERE sale_id = %(sale_id)s AND size = %(was)s
"""


class TileNotFound(FairdropError):
    """This log has no such tile yet."""

    code, status = "not_found", 404


class LogForks(Exception):
    """The log in the database is not the one that a checkpoint was published of."""


class Proof(NamedTuple):
    """A leaf, and the way from it to the root of a checkpoint, which is given as a signed note."""

    leaf: bytes
    at: int
    path: list[bytes]
    checkpoint: str


def state_of(log: SaleLog) -> LogState:
    """Return how far a log is."""
    return LogState(
        size=log.size,
        cursor=log.cursor,
        is_open=log.is_open,
        is_closed=log.is_closed,
        units=log.units,
        ordinal=log.ordinal,
        seq=log.seq,
        versions=list(log.versions),
        lost=list(log.lost),
        restored=dict(log.restored),
    )


def tree_of(sale_id: int, *, over: Collection[int] = ()) -> Tree:
    """Return the tree of a log; its tiles are read when they are wanted. Raises TileNotFound.

    over: the numbers of leaves: the tiles above them are read at once, for a path leads through them.
    """
    wanted = Q()
    for leaf in over:
        for level in range(max(over).bit_length() // WIDTH_BITS + 1):
            wanted |= Q(level=level, number=leaf >> WIDTH_BITS * (level + 1))
    found = Tile.objects.filter(wanted, sale_id=sale_id) if over else ()
    known = {(tile.level, tile.number): bytes(tile.data) for tile in found}

    def read(level: int, number: int) -> bytes:
        return known.get((level, number)) or bytes(read_tile(sale_id, level, number).data)

    return Tree(read)


def read_tile(sale_id: int, level: int, number: int) -> Tile:
    """Return a tile. Raises TileNotFound."""
    found = Tile.objects.filter(sale_id=sale_id, level=level, number=number).first()
    if found is None:
        raise TileNotFound
    return found


def find_log(slug: str) -> SaleLog:
    """Return the log of the sale `slug`. Raises SaleNotFound, also when nothing of it was published."""
    log = SaleLog.objects.filter(sale__slug=slug, is_kept=True).exclude(checkpoint="").first()
    if log is None:
        raise SaleNotFound("This sale has no public log, or nothing of it was published yet.")
    return log


def bundle_of(data: bytes, width: int) -> bytes:
    """Return the first `width` leaves of an entries tile, each with its length in two bytes before it."""
    at = 0
    for _ in range(width):
        at += LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "big")
    return data[:at]


def leaves_of(data: bytes) -> Iterator[bytes]:
    """Yield the leaves of an entries tile."""
    at = 0
    while at < len(data):
        begin = at + LENGTH_BYTES
        at = begin + int.from_bytes(data[at:begin], "big")
        yield data[begin:at]


def append(cursor: Cursor, log: SaleLog, state: LogState, *, at_us: int) -> None:
    """Write down what `state` adds to `log`, with a checkpoint after the last leaf, in the caller's transaction.

    at_us: the moment of publication. Raises LogForks when somebody else has added to the log meanwhile.
    """
    at_us = max(at_us, log.at_us)
    texts = [leaf_text(leaf, index=state.size + i, at_us=at_us) for i, leaf in enumerate(state.leaves)]
    size, note = state.size + len(texts), log.checkpoint
    if texts:
        if max(map(len, texts)) > MAX_LEAF_BYTES:
            raise ValueError("a leaf is larger than a log may hold")
        edge = _edge(log)
        note = sign(Checkpoint(log.origin, size, _grow(cursor, log, state, texts, edge)))
    # Not dataclasses.asdict: it copies every leaf, half of what a notary's step took.
    fields = {name: getattr(state, name) for name in ("cursor", "is_open", "is_closed", "units", "ordinal", "seq")}
    fields |= {name: json.dumps(getattr(state, name)) for name in ("versions", "lost", "restored")}
    values = {**fields, "sale_id": log.sale_id, "size": size, "was": log.size, "at_us": at_us, "checkpoint": note}
    cursor.execute(SAVE_LOG, values)
    if cursor.rowcount != 1:
        raise LogForks("somebody else has added to this log")
    log.size, log.checkpoint = size, note


def _edge(log: SaleLog) -> dict[int, bytes]:
    """Return the tile in which each level of a log ends, where it is unfinished; ENTRIES is the level of the leaves."""
    wanted = {ENTRIES: log.size >> WIDTH_BITS}
    level, count = 0, log.size
    while count:
        wanted[level] = count >> WIDTH_BITS
        level, count = level + 1, count >> WIDTH_BITS
    tiles = Tile.objects.filter(sale_id=log.sale_id, level__in=wanted, number__in=set(wanted.values()))
    return {each.level: bytes(each.data) for each in tiles if each.number == wanted[each.level]}


def _grow(cursor: Cursor, log: SaleLog, state: LogState, texts: Sequence[bytes], edge: dict[int, bytes]) -> bytes:
    """Write the tiles that `texts` change; return the root of the tree after them."""
    rows: list[tuple[int, int, int, bytes, int]] = []
    parts, number = [edge.pop(ENTRIES, b"")], log.size >> WIDTH_BITS
    for offset, text in enumerate(texts):
        parts += (len(text).to_bytes(LENGTH_BYTES, "big"), text)
        end = log.size + offset + 1
        if end % WIDTH == 0 or offset == len(texts) - 1:
            width = (end - 1) % WIDTH + 1
            rows.append((ENTRIES, number, width, b"".join(parts), state.ordinals[offset]))
            parts, number = [], number + 1
    changed = grow(dict(edge), size=log.size, leaves=texts)
    rows += [(level, number, len(hashes) // HASH_BYTES, hashes, 0) for (level, number), hashes in changed.items()]
    levels, numbers, widths, datas, ordinals = map(list, zip(*rows, strict=True))
    values = {"sale_id": log.sale_id, "levels": levels, "numbers": numbers, "widths": widths, "ordinals": ordinals}
    # Bound by the server and in binary form: as text, a step's tiles would be a statement of megabytes to be parsed.
    with connection.wrap_database_errors:  # what this cursor raises has not passed through Django's
        psycopg.Cursor(cursor.connection).execute(SAVE_TILES, {**values, "datas": datas})
    known = {(level, log.size >> (WIDTH_BITS * (level + 1))): tile for level, tile in edge.items()}

    def read(level: int, number: int) -> bytes:
        tile = changed.get((level, number)) or known.get((level, number))
        return tile if tile is not None else bytes(read_tile(log.sale_id, level, number).data)

    return Tree(read).root(log.size + len(texts))


def check_grows_from(log: SaleLog, checkpoint: Checkpoint) -> None:
    """Raise LogForks unless `log` is, or has grown from, what `checkpoint` says. Raises it for another origin too."""
    if log.origin != checkpoint.origin:
        raise LogForks(f"the log of {log.origin} was published as that of {checkpoint.origin}")
    if log.size < checkpoint.size:
        raise LogForks(f"{log.origin} has {log.size} leaves, {checkpoint.size} were published")
    if tree_of(log.sale_id).root(checkpoint.size) != checkpoint.root:
        raise LogForks(f"the first {checkpoint.size} leaves of {log.origin} are not those that were published")


def prove(log: SaleLog, *, request_id: str, ordinal: int) -> Proof:
    """Return the proof of the leaf that admitted a request. Raises RequestNotFound when it is not published."""
    checkpoint = read_note(log.checkpoint)
    tiles = Tile.objects.filter(sale_id=log.sale_id, level=ENTRIES)
    if request_id in log.restored:
        tile = tiles.filter(number=log.restored[request_id] >> WIDTH_BITS).first()
    else:
        tile = tiles.filter(ordinal__gte=ordinal).order_by("number").first()
    for offset, leaf in enumerate(leaves_of(bytes(tile.data)) if tile else ()):
        read: dict[str, Any] = json.loads(leaf)
        index = (tile.number << WIDTH_BITS) + offset if tile else 0
        if read["kind"] == "admitted" and read["request"] == request_id and index < checkpoint.size:
            path = tree_of(log.sale_id, over=(index, checkpoint.size - 1)).inclusion(index, checkpoint.size)
            return Proof(leaf, index, path, log.checkpoint)
    raise RequestNotFound("This place is not in the public log yet: ask again in a second.")
