"""Takes the time of a call, waits until something is so, and does something meanwhile. Never waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connection

from loadtest.bench.load.loop import LoadFailed

Value = TypeVar("Value")
LOOK_SECONDS = 0.05


def took_ms(act: Callable[..., object], *arguments: Any, **named: Any) -> float:
    """Do something; return how many ms it took."""
    began = time.perf_counter()
    act(*arguments, **named)
    return (time.perf_counter() - began) * 1000


def wait_for(
    wanted: Value, look: Callable[[], Value], *, seconds: float, what: str, every_seconds: float = LOOK_SECONDS
) -> None:
    """Return once `look` returns what is wanted. what: it looks at. Raises LoadFailed when that takes too long."""
    deadline = time.monotonic() + seconds
    while (found := look()) != wanted:
        if time.monotonic() > deadline:
            raise LoadFailed(f"{what}: {found} instead of {wanted} after {seconds:g} s")
        time.sleep(every_seconds)


@contextmanager
def again_and_again(act: Callable[[], object], *, every_seconds: float) -> Iterator[None]:
    """Do something for the length of a `with` block, in a thread with its own connection to the database.

    Raises what it raised, at the end of the block: from then on it was not done any more. Where the block fails, too,
    that is its cause.
    """
    over = threading.Event()

    def work() -> None:
        try:
            while not over.wait(every_seconds):
                act()
        finally:
            connection.close()

    with ThreadPoolExecutor(max_workers=1) as pool:
        working = pool.submit(work)
        try:
            yield
        except BaseException as error:
            over.set()
            raise error from working.exception()
        over.set()
        working.result()
