"""Proves that many viewers share one reading, that no two are made at once, and that none is shown for too long.
Uses the real servers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache

from shop.staff import shared_reading
from shop.staff.shared_reading import shared
from tests.integration.shop.staff.test_control_room import no_cache

pytestmark = pytest.mark.usefixtures("shop_database")


def keep_reading(name: str, *, took: float, seconds_ago: float = 60) -> None:
    """Let a reading of so long ago be kept, which took so many seconds."""
    kept = {"made_at": time.time() - seconds_ago, "took": took}
    shared_reading._OWN[name] = kept
    cache.set(name, json.dumps(kept))


@pytest.mark.parametrize("store", [nullcontext, no_cache])
@pytest.mark.parametrize(("seconds", "expected"), [(3600, 1), (0, 2)], ids=["as it is", "control"])
def test_no_reading_begins_while_another_one_runs(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, store: Callable[[], Any], seconds: int, expected: int
) -> None:
    """The control: a right to read that ends at once."""
    monkeypatch.setattr(shared_reading, "READING_SECONDS", seconds)
    name, began = new_sku(), []

    def read(last: dict[str, Any] | None) -> dict[str, Any]:
        began.append(last)
        if len(began) == 1:
            shared(name, read, every_seconds=0)  # as another thread asks meanwhile
        return {}

    with store():
        keep_reading(name, took=0.0)
        shared(name, read, every_seconds=0)
    assert len(began) == expected


@pytest.mark.parametrize("store", [nullcontext, no_cache])
@pytest.mark.parametrize(("times", "expected"), [(3, 0), (0, 1)], ids=["as it is", "control"])
def test_a_reading_that_took_long_is_kept_longer(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, store: Callable[[], Any], times: int, expected: int
) -> None:
    """The control: a pause that does not follow how long the reading took."""
    monkeypatch.setattr(shared_reading, "TIMES_AS_LONG", times)
    name, began = new_sku(), []
    with store():
        keep_reading(name, took=3600.0)
        shared(name, lambda last: {"last": began.append(last)}, every_seconds=1)
    assert len(began) == expected


@pytest.mark.parametrize("store", [nullcontext, no_cache])
@pytest.mark.parametrize("fails", [False, True])
def test_after_a_long_reading_a_quick_one_or_one_that_failed_holds_up_nobody(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, store: Callable[[], Any], fails: bool
) -> None:
    name, began, now = new_sku(), [], time.time()
    # A machine that stands still would make it a long reading.
    monkeypatch.setattr(shared_reading, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))

    def read(last: dict[str, Any] | None) -> dict[str, Any]:
        began.append(last)
        if fails and len(began) == 1:
            raise OSError
        return {}

    with store():
        keep_reading(name, took=10.0)
        with suppress(OSError):
            shared(name, read, every_seconds=0)
        shared(name, read, every_seconds=0)
    assert len(began) == 2


@pytest.mark.parametrize("store", [nullcontext, no_cache])
def test_a_process_keeps_no_reading_that_is_too_old_to_be_shown(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, store: Callable[[], Any]
) -> None:
    """The control: one that is not as old."""
    now, own = time.time(), dict[str, Any]()
    monkeypatch.setattr(shared_reading, "_OWN", own)
    own.update({"old": {"made_at": now - shared_reading.KEPT_SECONDS}, "newer": {"made_at": now - 60}})
    name = new_sku()
    with store():
        shared(name, lambda _: {}, every_seconds=1)
    assert set(own) - {f"{name}:reading"} == {"newer", name}


@pytest.mark.parametrize("store", [nullcontext, no_cache])
def test_after_a_clock_was_set_back_readings_go_on(new_sku: Callable[[], str], store: Callable[[], Any]) -> None:
    name, began = new_sku(), []
    with store():
        keep_reading(name, took=0.0, seconds_ago=-3600)
        shared_reading._OWN[f"{name}:reading"] = {"made_at": time.time() + 3600}
        shared(name, lambda last: {"last": began.append(last)}, every_seconds=1)
    assert len(began) == 1
