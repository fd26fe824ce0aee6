"""Starts the shop's two servers, PostgreSQL and Valkey, as children with their data in a given folder.
Never touches another server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workers.embedded.postgres import start_postgres
from workers.embedded.server import Server
from workers.embedded.valkey import start_valkey

__all__ = ["Servers", "start_both", "start_postgres", "start_valkey"]


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Both servers, running."""

    postgres: Server
    valkey: Server

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which every other process finds them."""
        return {"DATABASE_URL": self.postgres.url, "REDIS_URL": self.valkey.url}


@contextmanager
def start_both(data_dir: Path) -> Iterator[Servers]:
    """Run both servers for the length of a `with` block."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with start_postgres(data_dir) as postgres, start_valkey(data_dir) as valkey:
        yield Servers(postgres=postgres, valkey=valkey)
