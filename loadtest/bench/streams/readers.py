"""Holds many live streams open in a process of its own and counts what comes. Never measures a wait.
So the reading costs the measured process nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event

from loadtest.bench.load.loop import HOST, LoadFailed
from loadtest.bench.load.payloads import address, get

CONNECT_SECONDS = 30.0
OPEN_SECONDS = 60.0
SPARE_HANDLES = 200
# The readers of a shop are on other machines: here they must not take the core from who measures.
NICENESS = 15
# In every version of Python: a forked process has all that this one has, also what a test put in its place.
FORK = multiprocessing.get_context("fork")


class Counts:
    """What a crowd of readers has seen so far."""

    def __init__(self) -> None:
        self.opened = FORK.Value("i", 0)
        self.messages = FORK.Value("q", 0)
        self.closed = FORK.Value("i", 0)


@contextmanager
def reading(port: int, streams: Sequence[tuple[str, str]]) -> Iterator[Counts]:
    """Follow `streams`, each a path and a buyer token, for the length of a `with` block; all of them are open in it.

    Raises LoadFailed when they do not open, or when the process that reads them has ended at the end.
    """
    counts, ends = Counts(), FORK.Event()
    process = FORK.Process(target=_read, args=(port, list(streams), counts, ends), daemon=True)
    process.start()
    try:
        deadline = time.monotonic() + OPEN_SECONDS
        while counts.opened.value < len(streams):
            if time.monotonic() > deadline or not process.is_alive():
                raise LoadFailed(f"only {counts.opened.value} of {len(streams)} streams opened")
            time.sleep(0.05)
        yield counts
        if not process.is_alive():
            raise LoadFailed("the readers of the streams have ended")
    finally:
        ends.set()
        process.join(10)
        if process.is_alive():
            process.kill()


def _read(port: int, streams: Sequence[tuple[str, str]], counts: Counts, ends: Event) -> None:
    os.nice(NICENESS)
    sockets: dict[int, socket.socket] = {}
    begun: set[int] = set()
    with select.epoll() as poll:
        for number, (path, token) in enumerate(streams):
            opened = socket.create_connection((HOST, port), timeout=CONNECT_SECONDS)
            headers = f"Authorization: Bearer {token}\r\nX-Forwarded-For: {address(number)}\r\n"
            opened.sendall(get(path, port=port, headers=headers))
            opened.setblocking(False)
            sockets[opened.fileno()] = opened
            poll.register(opened, select.EPOLLIN)
        while not ends.is_set():
            for handle, _ in poll.poll(0.2):
                if not (data := _received(sockets[handle])):
                    poll.unregister(handle)
                    counts.closed.value += 1
                    continue
                found = data.count(b"\ndata: ")
                counts.messages.value += found
                if found and handle not in begun:
                    begun.add(handle)
                    counts.opened.value += 1
        for each in sockets.values():
            each.close()


def _received(stream: socket.socket) -> bytes:
    """Return what has come; nothing when the stream has ended, however it did."""
    with suppress(ConnectionError):
        return stream.recv(65_536)
    return b""
