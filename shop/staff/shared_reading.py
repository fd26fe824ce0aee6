"""Lets many viewers of one page share one reading, in all web processes: made at most once in a while, kept in the
cache. Never makes a page fail because the cache is away: then each process shares with itself.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from django.core.cache import cache

KEPT_SECONDS = 900
# A reader who comes while the very first reading is being made waits for it, not much longer than it takes.
FIRST_SECONDS = 3.0
LOOK_AGAIN_SECONDS = 0.05
# One that takes long is made less often: about a third of the time goes into it.
TIMES_AS_LONG = 3
# None begins while another one runs, but after so long, or after a pause that is longer: its process is gone by then.
READING_SECONDS = 15

_OWN: dict[str, dict[str, Any]] = {}
_MUTEX = threading.Lock()


def shared(
    name: str, make: Callable[[dict[str, Any] | None], dict[str, Any]], *, every_seconds: float
) -> dict[str, Any]:
    """Return the last reading `name`, or what `make` (given the last one) reads when that is `every_seconds` old.

    A reading that took long is kept longer: TIMES_AS_LONG what it took.
    """
    give_up_at = time.monotonic() + FIRST_SECONDS
    while True:
        last = _last(name)
        # One that was kept by the version before does not say how long it took.
        pause = max(every_seconds, TIMES_AS_LONG * last.get("took", 0.0) if last else 0.0)
        if last is not None and _age(last) < pause:
            return last
        if _may_make(name, seconds=max(READING_SECONDS, round(pause))):
            return _make(name, make, last)
        if last is not None:
            return last
        if time.monotonic() >= give_up_at:
            return _make(name, make, None)
        time.sleep(LOOK_AGAIN_SECONDS)


def _age(kept: dict[str, Any]) -> float:
    """Return how many seconds a reading is away from now: one from before a clock was set back is no new one."""
    return abs(time.time() - float(kept["made_at"]))


def _may_make(name: str, *, seconds: int) -> bool:
    """Say whether this call is the one that reads; the right to it ends after `seconds`, should its process die."""
    made = cache.add(f"{name}:reading", "1", timeout=seconds)
    if made is not None:
        return bool(made)
    # The cache is away. One thread of this process reads.
    with _MUTEX:
        if _age(_OWN.get(f"{name}:reading", {"made_at": 0.0})) < seconds:
            return False
        _keep_own(f"{name}:reading", {"made_at": time.time()})
        return True


def _make(
    name: str, make: Callable[[dict[str, Any] | None], dict[str, Any]], last: dict[str, Any] | None
) -> dict[str, Any]:
    began = time.time()
    try:
        reading: dict[str, Any] = {**make(last), "made_at": began, "took": time.time() - began}
        _keep_own(name, reading)
        cache.set(name, json.dumps(reading), timeout=KEPT_SECONDS)
    finally:
        _OWN.pop(f"{name}:reading", None)
        cache.delete(f"{name}:reading")
    return reading


def _last(name: str) -> dict[str, Any] | None:
    text = cache.get(name)
    if text is not None:
        kept: dict[str, Any] = json.loads(text)
        return kept
    own = _OWN.get(name)
    return own if own and _age(own) < KEPT_SECONDS else None


def _keep_own(name: str, reading: dict[str, Any]) -> None:
    """Keep `reading` in this process, and none that is too old to be shown; another thread may do the same."""
    for other, kept in list(_OWN.items()):
        if _age(kept) >= KEPT_SECONDS:
            _OWN.pop(other, None)
    _OWN[name] = reading
