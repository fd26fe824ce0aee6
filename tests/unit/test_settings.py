"""Production refuses to start with anything unsafe and names all of it. Each case is a process of its own.
Needs no server. Called by pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAFE = {
    "FAIRDROP_ENV": "production",
    "DEBUG": "false",
    "SECRET_KEY": "s" * 50,
    "FAIRDROP_TOKEN_KEYS": "t" * 32 + "," + "u" * 32,
    "FAIRDROP_AUDIT_TOKEN": "a" * 32,
    "ALLOWED_HOSTS": "shop.example",
    "DATABASE_URL": "postgresql://shop:secret@db.example/shop",
    "REDIS_URL": "redis://redis.example/0",
    "FAIRDROP_PAYMENT_PROVIDERS": "acme=acme.payments.Cards",
}
# As safe with the sandbox, which somebody has to want.
WITH_SANDBOX = {
    "FAIRDROP_PAYMENT_PROVIDERS": "",
    "FAIRDROP_SANDBOX_ALLOWED": "true",
    "FAIRDROP_SANDBOX_SECRET": "x" * 32,
    "FAIRDROP_PUBLIC_URL": "https://shop.example",
}
SECRET_FAULT = "SECRET_KEY must have at least 50 characters"
TOKEN_FAULT = "FAIRDROP_TOKEN_KEYS must have at least 32 characters"
AUDIT_FAULT = "FAIRDROP_AUDIT_TOKEN must have at least 32 characters"
MONEY_FAULT = "FAIRDROP_PAYMENT_PROVIDERS must name who takes the money, or FAIRDROP_SANDBOX_ALLOWED be true"
SANDBOX_FAULT = "FAIRDROP_SANDBOX_SECRET must have at least 32 characters"
ADDRESS_FAULT = "FAIRDROP_PUBLIC_URL must say where the sandbox reaches the shop"
CACHE_FAULT = "CACHE_URL must name one plain server: the cache knows neither Sentinel nor Cluster"
HOSTS_FAULT = "ALLOWED_HOSTS must name the hosts of the shop"


def start(folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Read the settings in a new process whose environment is SAFE with `changes`."""
    environment = {"PATH": os.environ["PATH"], "FAIRDROP_STATE_DIR": str(folder), **SAFE, **changes}
    return subprocess.run(
        [sys.executable, "-c", "import shop.settings"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def faults(started: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what production called unsafe, in its order."""
    head, _, found = started.stderr.strip().splitlines()[-1].partition("refusing to start in production: ")
    assert head.endswith("ImproperlyConfigured: ")
    return found.split("; ")


def test_safe_settings_start(tmp_path: Path) -> None:
    """The control: without a fault, production starts, and leaves no secret of its own behind."""
    started = start(tmp_path)
    assert (started.returncode, started.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("DEBUG", "true", "DEBUG must be off"),
        ("SECRET_KEY", "", SECRET_FAULT),
        ("SECRET_KEY", "s" * 49, SECRET_FAULT),
        ("FAIRDROP_TOKEN_KEYS", "", TOKEN_FAULT),
        ("FAIRDROP_TOKEN_KEYS", "t" * 32 + ",short", TOKEN_FAULT),
        ("FAIRDROP_AUDIT_TOKEN", "a" * 31, AUDIT_FAULT),
        ("FAIRDROP_FAULT", "after_take:kill", "FAIRDROP_FAULT must not be set"),
        ("FAIRDROP_RIVALS", "1", "FAIRDROP_RIVALS must be off"),
        ("ALLOWED_HOSTS", "", HOSTS_FAULT),
        ("ALLOWED_HOSTS", "shop.example,*", HOSTS_FAULT),
        ("DATABASE_URL", "", "DATABASE_URL must be set"),
        ("REDIS_URL", "", "REDIS_URL must be set"),
        ("FAIRDROP_PAYMENT_PROVIDERS", "", MONEY_FAULT),
        ("FAIRDROP_PAYMENT_PROVIDERS", "toy=shop.sandbox.provider.Sandbox", MONEY_FAULT),
        ("FAIRDROP_SANDBOX_MISCHIEF", "twice", "FAIRDROP_SANDBOX_MISCHIEF must not be set"),
        ("REDIS_URL", "redis+sentinel://:secret@one.example:26379/shop/0", CACHE_FAULT),
        ("REDIS_URL", "rediss+cluster://:secret@one.example:7000", CACHE_FAULT),
        ("CACHE_URL", "redis+cluster://:secret@one.example:7000", CACHE_FAULT),
    ],
)
def test_production_refuses_one_unsafe_thing_by_name(tmp_path: Path, name: str, value: str, fault: str) -> None:
    started = start(tmp_path, **{name: value})
    assert started.returncode == 1
    assert faults(started) == [fault]


def test_production_with_a_sandbox_that_is_wanted(tmp_path: Path) -> None:
    started = start(tmp_path, **WITH_SANDBOX)
    assert (started.returncode, started.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("FAIRDROP_SANDBOX_ALLOWED", "false", MONEY_FAULT),
        ("FAIRDROP_SANDBOX_SECRET", "x" * 31, SANDBOX_FAULT),
        ("FAIRDROP_PUBLIC_URL", "", ADDRESS_FAULT),
    ],
)
def test_a_sandbox_in_production_needs_a_secret_and_an_address(
    tmp_path: Path, name: str, value: str, fault: str
) -> None:
    started = start(tmp_path, **WITH_SANDBOX | {name: value})
    assert started.returncode == 1
    assert faults(started) == [fault]


def test_beside_a_sentinel_one_plain_server_keeps_the_cache(tmp_path: Path) -> None:
    """The control of the refusals above."""
    watched = "redis+sentinel://:secret@one.example:26379/shop/0"
    started = start(tmp_path, REDIS_URL=watched, CACHE_URL="redis://:secret@cache.example:6379/1")
    assert (started.returncode, started.stderr) == (0, "")


def test_a_cluster_cannot_be_asked_to_wait_for_replicas(tmp_path: Path) -> None:
    """With Sentinel the same setting starts."""
    stores = {"CACHE_URL": "redis://:secret@cache.example:6379/1", "FAIRDROP_REDIS_REPLICAS": "1"}
    started = start(tmp_path, REDIS_URL="rediss+cluster://:secret@one.example:6379", **stores)
    assert started.returncode == 1
    assert "not on a Cluster" in started.stderr
    assert start(tmp_path, REDIS_URL="redis+sentinel://:secret@one.example:26379/shop/0", **stores).returncode == 0


def test_production_names_everything_at_once(tmp_path: Path) -> None:
    unsafe = dict.fromkeys(SAFE, "") | {"FAIRDROP_ENV": "production", "DEBUG": "true", "FAIRDROP_AUDIT_TOKEN": "a"}
    assert len(faults(start(tmp_path, **unsafe))) == 8


def test_a_laptop_needs_none_of_them(tmp_path: Path) -> None:
    unset = {name: "" for name in SAFE if name not in {"DATABASE_URL", "REDIS_URL", "DEBUG"}}
    started = start(tmp_path, **unset | {"FAIRDROP_ENV": "development"})
    assert (started.returncode, started.stderr) == (0, "")


def test_the_secret_of_a_laptop_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    start(tmp_path, FAIRDROP_ENV="development", SECRET_KEY="")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
