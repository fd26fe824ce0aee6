"""The Merkle tree of a log in tiles of 256, as RFC 6962 hashes it and tlog-tiles (C2SP) cuts it. Pure.
Knows neither leaves' meaning nor where tiles are kept: a reader gives them by level and number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

HASH_BYTES = 32
WIDTH_BITS = 8
WIDTH = 1 << WIDTH_BITS
# Leaves: where a log keeps the texts themselves.
ENTRIES = -1
EMPTY_ROOT = sha256(b"").digest()

# (level, number) of a tile → its bytes, which may go on after the end of the tree that is asked about.
TileReader = Callable[[int, int], bytes]


def leaf_hash(leaf: bytes) -> bytes:
    """Return the hash of a leaf (RFC 6962, 2.1)."""
    return sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node (RFC 6962, 2.1)."""
    return sha256(b"\1" + left + right).digest()


def full_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over 2^n hashes of one level."""
    row = list(hashes)
    while len(row) > 1:
        row = [node_hash(left, right) for left, right in zip(row[::2], row[1::2], strict=True)]
    return row[0]


def split(count: int) -> int:
    """Return the largest power of two below `count` (≥ 2): where a tree of so many leaves parts."""
    return 1 << (count - 1).bit_length() - 1


class Tree:
    """The tree over tiles. read: gives a tile's bytes; each is asked for once."""

    def __init__(self, read: TileReader) -> None:
        self._read = read
        self._known: dict[tuple[int, int], bytes] = {}

    def _tile(self, level: int, number: int) -> bytes:
        key = (level, number)
        if key not in self._known:
            self._known[key] = bytes(self._read(level, number))
        return self._known[key]

    def _node(self, height: int, index: int) -> bytes:
        """Return the hash of the perfect subtree of 2^height leaves that begins at leaf index × 2^height."""
        level, up = divmod(height, WIDTH_BITS)
        first = index << up
        number, at = divmod(first, WIDTH)
        tile = self._tile(level, number)
        found = [tile[(at + i) * HASH_BYTES : (at + i + 1) * HASH_BYTES] for i in range(1 << up)]
        return full_root(found)

    def range_hash(self, begin: int, end: int) -> bytes:
        """Return the hash over the leaves from `begin` to before `end`; begin is a multiple of the part's size."""
        count = end - begin
        if count == 0:
            return EMPTY_ROOT
        if count & (count - 1) == 0:
            height = count.bit_length() - 1
            return self._node(height, begin >> height)
        middle = begin + split(count)
        return node_hash(self.range_hash(begin, middle), self.range_hash(middle, end))

    def root(self, size: int) -> bytes:
        """Return the root of the first `size` leaves."""
        return self.range_hash(0, size)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the path from leaf `index` to the root of the first `size` leaves (RFC 6962, 2.1.1)."""
        path: list[bytes] = []
        begin, end = 0, size
        while end - begin > 1:
            middle = begin + split(end - begin)
            if index < middle:
                path.append(self.range_hash(middle, end))
                end = middle
            else:
                path.append(self.range_hash(begin, middle))
                begin = middle
        return path[::-1]


def grow(edge: dict[int, bytes], *, size: int, leaves: Sequence[bytes]) -> dict[tuple[int, int], bytes]:
    """Add the hashes of `leaves` to a tree of `size`; return every tile that changed, whole.

    edge: level → the tile in which that level ends, which is changed; a level without one has none that is unfinished.
    """
    changed: dict[tuple[int, int], bytes] = {}
    row, level, begin = [leaf_hash(leaf) for leaf in leaves], 0, size
    while row:
        data, number = edge.get(level, b"") + b"".join(row), begin >> WIDTH_BITS
        above: list[bytes] = []
        while len(data) >= WIDTH * HASH_BYTES:
            full, data = data[: WIDTH * HASH_BYTES], data[WIDTH * HASH_BYTES :]
            changed[level, number] = full
            above.append(full_root([full[i : i + HASH_BYTES] for i in range(0, len(full), HASH_BYTES)]))
            number += 1
        edge[level] = data
        if data:
            changed[level, number] = data
        row, level, begin = above, level + 1, begin >> WIDTH_BITS
    return changed
