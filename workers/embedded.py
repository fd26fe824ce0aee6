"""Starts the shop's two servers, PostgreSQL and Valkey, as children with their data in a given folder.
Never touches a server whose address is already in the environment. Called by the demo, the tests and by hand:
`python -m workers.embedded --data DIR` runs both in the foreground and prints their addresses.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from workers.embedded_postgres import start_postgres
from workers.embedded_valkey import start_valkey
from workers.server import Server

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
def start_both(data_dir: Path, *, environment: Mapping[str, str]) -> Iterator[Servers]:
    """Run both servers for the length of a `with` block, except those that `environment` already names."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        yield Servers(
            postgres=stack.enter_context(postgres_of(environment) or start_postgres(data_dir)),
            valkey=stack.enter_context(valkey_of(environment) or start_valkey(data_dir)),
        )


def postgres_of(environment: Mapping[str, str]) -> Server | None:
    """Return the PostgreSQL that the environment names, if it does."""
    url = environment.get("DATABASE_URL")
    return Server(url=url) if url else None


def valkey_of(environment: Mapping[str, str]) -> Server | None:
    """Return the Redis or Valkey that the environment names, if it does."""
    url = environment.get("REDIS_URL")
    return Server(url=url) if url else None


def main() -> None:
    """Run both servers until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description="Run PostgreSQL and Valkey in the foreground.")
    parser.add_argument("--data", type=Path, required=True, help="folder for their data, made when missing")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    with start_both(parser.parse_args().data, environment={}) as servers:
        for name, value in servers.environment.items():
            print(f"export {name}='{value}'", flush=True)
        stop.wait()


if __name__ == "__main__":
    main()
