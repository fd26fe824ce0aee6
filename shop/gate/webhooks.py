"""POST /api/v1/payments/<provider>/notices: what a provider has to say, in threads that go straight to the books.
Never believes an unsigned byte, never queues without a bound.
Behind a plain WSGI server the view of shop/api/actions.py does the same.

Through Django's middleware each notice costs twice the time of this process, and the next one waits for it.
"""

from __future__ import annotations

from django.utils.datastructures import CaseInsensitiveMapping

from shop.api.actions import MAX_NOTICE_BYTES
from shop.gate.server.threads import ThreadPool
from shop.http import Receive, read_body
from shop.payments import notices
from shop.payments.rows import NoticeResult
from shop.replies import Headers


class Notices:
    """The webhooks of one process, for all providers."""

    def __init__(self) -> None:
        self._threads = ThreadPool("notices", threads=8, max_waiting=256)

    async def handle(self, provider_name: str, headers: Headers, receive: Receive) -> dict[str, str]:
        """Return the answer to one notice. Raises InvalidRequest, RequestNotFound, TooLarge, Unavailable."""
        body = await read_body(receive, headers, max_bytes=MAX_NOTICE_BYTES)
        return {"result": await self._threads.read(_take, provider_name, headers, body)}


def _take(provider_name: str, headers: Headers, body: bytes) -> NoticeResult:
    # A header's bytes are latin-1 by the protocol, its name is of any case.
    named = CaseInsensitiveMapping({name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()})
    return notices.read_and_take(named, body, provider_name=provider_name)
