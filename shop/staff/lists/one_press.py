"""Lets one press at a time act on the same thing, in all processes. Never waits: the other press is told so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.utils.translation import gettext

from inventory.exceptions import InvalidRequest
from inventory.postgres import TwoKeyAdvisoryLock


@contextmanager
def alone(lock: TwoKeyAdvisoryLock, number: int, *, what: str) -> Iterator[None]:
    """Let nobody else act under the same lock meanwhile: of a form that is sent twice one is seen to be stale.

    number: the id of the sale; 0 for one at a time in the whole shop.
    Raises InvalidRequest, which says `what` is under way.
    """
    names = [lock, number % 2**31]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", names)
        if not cursor.fetchone()[0]:
            text = gettext("%(what)s is under way; nothing was done now, look again")
            raise InvalidRequest(text % {"what": what})
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", names)
