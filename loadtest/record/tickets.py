"""Keeps every ticket, as the buyers do: a line each, a file a process. Never judges."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

FILE_PREFIX = "tickets-"
# Of a ticket that a stranger can check; one of another form proves nothing to them.
PREFIX = "fdt2."


class TicketWriter:
    """Appends tickets to this process's own file, each line with one write: a killed process has lost none."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{FILE_PREFIX}{socket.gethostname()}-{os.getpid()}.txt").open("wb", buffering=0)

    def add(self, ticket: str, *, sale: str) -> None:
        """Keep a ticket, whatever its form; "-" stands for one that an answer lacked."""
        if not self._file.closed:
            self._file.write(f"{sale} {ticket or '-'}\n".encode())

    def close(self) -> None:
        """Keep no more."""
        self._file.close()


def read_tickets(folder: Path, *, sale: str) -> Iterator[str]:
    """Yield the tickets of one sale, of all processes of a run. A line that was never finished is left out."""
    for path in sorted(folder.glob(f"{FILE_PREFIX}*.txt")):
        with path.open() as file:
            for line in file:
                slug, _, ticket = line.partition(" ")
                if slug == sale and ticket.endswith("\n"):
                    yield ticket.rstrip()


def clear_tickets(folder: Path) -> None:
    """Remove the tickets of an earlier run."""
    for path in folder.glob(f"{FILE_PREFIX}*.txt"):
        path.unlink()
