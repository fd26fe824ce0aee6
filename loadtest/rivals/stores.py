"""Gives rivals the Redis of the settings, through a client as its library makes it by default.
Never gives them the shop's own options: what is compared is what their authors would have.
"""

from __future__ import annotations

import os
from functools import lru_cache

from django.conf import settings

from inventory.redis import Client, connect_once


def redis_client() -> Client:
    """Return this process's client; it may be used by many threads."""
    return _client(settings.REDIS_URL, os.getpid())


@lru_cache(maxsize=4)
def _client(url: str, _process_id: int) -> Client:
    # Only one file opens Redis; it is asked for the library's own class.
    return type(connect_once(url, timeout_seconds=1)).from_url(url)
