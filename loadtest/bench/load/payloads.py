"""Makes whole HTTP requests as bytes before the clock runs: each a purchase by a buyer who was never seen before.
Never sends them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from shop.buyers import issue_buyer

BODY = b'{"quantity":1}'


def fresh_wishes(slug: str, *, port: int, count: int) -> list[bytes]:
    """Return `count` POSTs for one unit of the sale `slug`, each with a new buyer's token."""
    return list(islice(endless_wishes(slug, port=port), count))


def endless_wishes(slug: str, *, port: int) -> Iterator[bytes]:
    """Yield such POSTs without end, each made when it is asked for."""
    head = (
        f"POST /api/v1/sales/{slug}/requests HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\nAuthorization: Bearer "
    )
    while True:
        yield f"{head}{issue_buyer()[1]}\r\n\r\n".encode() + BODY
