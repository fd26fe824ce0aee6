"""The gate that is profiled runs in the benchmark's own process, and waits for Redis no longer than the shop's does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadtest.bench.gate import profile
from loadtest.bench.harness import command, fixtures


@contextmanager
def no_servers(_folder: Path) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(environment={"REDIS_URL": "redis://nowhere"})


def test_only_who_measures_another_process_waits_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The control is a benchmark of other processes."""
    waits: list[str] = []
    monkeypatch.setattr(os, "environ", {**os.environ, "FAIRDROP_STATE_DIR": str(tmp_path)})
    os.environ.pop("FAIRDROP_REDIS_TIMEOUT_SECONDS", None)
    monkeypatch.setattr(command, "start_both", no_servers)
    monkeypatch.setattr(
        command, "set_up_django", lambda: waits.append(os.environ.get("FAIRDROP_REDIS_TIMEOUT_SECONDS", "as the shop"))
    )
    monkeypatch.setattr(fixtures, "make_fixture", lambda _: SimpleNamespace(slug="profile"))
    monkeypatch.setitem(sys.modules, "shop.asgi", SimpleNamespace(application=None))  # type: ignore[misc]
    monkeypatch.setattr(profile, "measure", lambda *_: None)
    monkeypatch.setattr(profile.uvloop, "run", lambda _: True)
    assert profile.main() == 0
    with command.one_shop(tmp_path):
        pass
    assert waits == ["as the shop", "5"]
