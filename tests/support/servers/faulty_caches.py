"""Takes Django's cache away for the length of a block, or lets it take no writes. Uses real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.test import override_settings

from tests.support.road import run
from workers.embedded.server import free_port


@contextmanager
def cache_away() -> Iterator[None]:
    """Let nobody listen at the address of the cache."""
    own = {**settings.CACHES["default"], "LOCATION": f"redis://127.0.0.1:{free_port()}/0"}
    with override_settings(CACHES={**settings.CACHES, "default": own}):
        yield


@contextmanager
def cache_without_writes() -> Iterator[None]:
    """Let its server answer as one does that has too few replicas, or is full."""
    run(("CONFIG", "SET", "min-replicas-to-write", 1))
    try:
        yield
    finally:
        run(("CONFIG", "SET", "min-replicas-to-write", 0))
