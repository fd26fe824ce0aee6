"""Makes the comparison's requests as bytes before the clock runs: new buyers, of whom some click twice.
Never sends them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.bench.load.loader import HOST
from shop.buyers import issue_buyer

BODY = b'{"quantity":1}'


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """asks: a whole request a wish; clicks: which wish each click is for, where some are for the one before."""

    tokens: Sequence[str]
    asks: Sequence[bytes]
    clicks: Sequence[int]


def make_wishes(path: str, *, port: int, count: int, repeated: float, seed: int) -> Wishes:
    """Return `count` wishes by new buyers, POSTed to `path`; the share `repeated` of them is clicked twice at once."""
    lot = random.Random(seed)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(BODY)}\r\nAuthorization: Bearer "
    )
    tokens = [issue_buyer()[1] for _ in range(count)]
    asks = [f"{head}{token}\r\n\r\n".encode() + BODY for token in tokens]
    clicks = [wish for wish in range(count) for _ in range(2 if lot.random() < repeated else 1)]
    return Wishes(tokens=tokens, asks=asks, clicks=clicks)


def look_of(path: str, *, token: str, port: int) -> bytes:
    """Return a request for the status of a wish."""
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
