"""Makes whole HTTP requests as bytes before the clock runs: each a purchase by a buyer who was never seen before.
Never sends them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

from loadtest.bench.load.loop import HOST
from shop.buyers import issue_buyer

BODY = b'{"quantity":1}'


def fresh_payloads(slug: str, *, port: int, count: int, origin: str = "") -> list[bytes]:
    """Return `count` POSTs for one unit of the sale `slug`, each with a new buyer's token."""
    return list(islice(endless_payloads(slug, port=port, origin=origin), count))


def endless_payloads(slug: str, *, port: int, origin: str = "") -> Iterator[bytes]:
    """Yield such POSTs without end, each made when it is asked for.

    origin: the address all come from; without it each comes from an address and a network of its own.
    """
    path = f"/api/v1/sales/{slug}/requests"
    for number in count():
        yield post(path, port=port, token=issue_buyer()[1], origin=origin or address(number))


def post(path: str, *, port: int, token: str = "", origin: str = "", body: bytes = BODY, headers: str = "") -> bytes:
    """Return a POST by the buyer of `token`, if there is one. origin: the address that buyer comes from.

    headers: more, each with its line end; body: for one unit when it is not given.
    """
    buyer = f"Authorization: Bearer {token}\r\nX-Forwarded-For: {origin}\r\n" if token else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{buyer}{headers}\r\n"
    )
    return head.encode() + body


def get(path: str, *, port: int, headers: str = "") -> bytes:
    """Return a GET. headers: each with its line end."""
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n{headers}\r\n".encode()


def address(number: int) -> str:
    """Return the address of a buyer: that many have a network each."""
    return f"{11 + (number >> 16) % 100}.{number >> 8 & 255}.{number & 255}.1"
