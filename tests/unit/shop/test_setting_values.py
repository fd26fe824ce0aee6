"""A number or a word that cannot be right is refused when a process starts, and its variable is named; blank is the
default. Most cases are a process of their own. Needs no server.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from inventory.locks.base import MIN_TTL_MS
from shop.settings import number
from tests.unit.shop.test_settings import start

NAME = "FAIRDROP_OF_THIS_TEST"


@pytest.mark.parametrize(
    ("name", "value", "bounds"),
    [
        # Each settler died of its first lock.
        ("FAIRDROP_LOCK_TTL_MS", str(MIN_TTL_MS - 1), f"a whole number of at least {MIN_TTL_MS}"),
        # Every ask, and every stream, was refused.
        ("FAIRDROP_GATE_MAX_WAITING", "0", "a whole number of at least 1"),
        ("FAIRDROP_GATE_MAX_STREAMS", "0", "a whole number of at least 1"),
        # Every call to Redis failed, or none ever did.
        ("FAIRDROP_REDIS_TIMEOUT_SECONDS", "0", "a number from 0.01 to 3600"),
        ("FAIRDROP_REDIS_TIMEOUT_SECONDS", "nan", "a number from 0.01 to 3600"),
        ("FAIRDROP_REDIS_TIMEOUT_SECONDS", "inf", "a number from 0.01 to 3600"),
        ("FAIRDROP_RESTORE_GRACE_SECONDS", "-1", "a number from 0 to 3600"),
        ("FAIRDROP_REDIS_REPLICAS", "-1", "a whole number of at least 0"),
        ("FAIRDROP_KEEP_ORDERS_DAYS", "29", "a whole number of at least 30"),
        ("LOG_LEVEL", "LOUD", "DEBUG, INFO, WARNING or ERROR"),
    ],
)
def test_a_value_with_which_nothing_would_work_is_refused_by_name(
    tmp_path: Path, name: str, value: str, bounds: str
) -> None:
    started = start(tmp_path, **{name: value})
    assert started.returncode == 1
    last = started.stderr.strip().splitlines()[-1]
    assert last.endswith(f"ImproperlyConfigured: {name} must be {bounds}, not {value!r}")


def test_the_bounds_themselves_are_taken(tmp_path: Path) -> None:
    least = {"FAIRDROP_LOCK_TTL_MS": str(MIN_TTL_MS), "FAIRDROP_REDIS_TIMEOUT_SECONDS": "0.01", "LOG_LEVEL": "info"}
    code = "from shop.settings import *; print(LOCK_TTL_MS, GATE_MAX_WAITING, REDIS_TIMEOUT_SECONDS, LOG_LEVEL)"
    started = start(tmp_path, "-c", code, FAIRDROP_GATE_MAX_WAITING="1", **least)
    assert started.stdout == f"{MIN_TTL_MS} 1 0.01 INFO\n", started.stderr


def test_blank_is_the_default(tmp_path: Path) -> None:
    blank = ("FAIRDROP_LOCK_TTL_MS", "FAIRDROP_REDIS_TIMEOUT_SECONDS", "FAIRDROP_RATE_OF_ASKS", "LOG_LEVEL")
    code = "from shop.settings import *; print(LOCK_TTL_MS, REDIS_TIMEOUT_SECONDS, RATE_OF_ASKS, LOG_LEVEL)"
    started = start(tmp_path, "-c", code, **dict.fromkeys((*blank, "OTEL_TRACES_SAMPLER"), ""))
    assert started.stdout == "5000 0.8 (1000.0, 100.0) WARNING\n", started.stderr


def test_blank_addresses_are_the_defaults_too(tmp_path: Path) -> None:
    """A blank CACHE_URL broke every page with a session; a blank folder let the secret be written into this one."""
    code = "import shop.settings as s; print(s.CACHE_URL == s.REDIS_URL, s.STATE_DIR == s.BASE_DIR / '.fairdrop')"
    started = start(tmp_path, "-c", code, CACHE_URL="", FAIRDROP_STATE_DIR="")
    assert started.stdout == "True True\n", started.stderr


@pytest.mark.parametrize(("text", "found"), [("", 5), (" ", 5), ("1", 1), (" 9 ", 9)])
def test_a_number_within_its_bounds(monkeypatch: pytest.MonkeyPatch, text: str, found: int) -> None:
    monkeypatch.setenv(NAME, text)
    assert number(NAME, default=5, at_least=1, at_most=9) == found


@pytest.mark.parametrize("text", ["0", "10", "5.0", "five", "0x5"])
def test_a_number_that_is_none_or_out_of_its_bounds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(NAME, text)
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} must be a whole number from 1 to 9, not '{text}'"):
        number(NAME, default=5, at_least=1, at_most=9)
