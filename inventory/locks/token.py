"""Names the owner of a lock so that people can read it, and reads such a name. Never repeats a name."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from functools import cache
from typing import NamedTuple


class Owner(NamedTuple):
    """A holder or waiter: where it runs, and when its token was made (Unix time)."""

    host: str
    process_id: int
    thread_id: int
    since_unix_seconds: float


def new_token() -> str:
    """Return an owner's name: host|pid|thread|time|64 random bits, so that a stuck lock can be traced (S8, L9)."""
    return f"{_host()}|{os.getpid()}|{threading.get_ident()}|{time.time_ns()}|{new_nonce()}"


@cache
def _host() -> str:
    # A separator in a host name would make the name unreadable, a leading g: would make it a grant.
    return socket.gethostname().replace("|", "_").replace(":", "_")


# For nonces and the waits between tries, of our own: the shared generator belongs to the program that uses these locks.
# Nothing secret depends on it; to ask the system each time costs 3 µs. A forked child must not repeat its parent's.
DICE = random.Random(os.urandom(32))  # noqa: S311
os.register_at_fork(after_in_child=lambda: DICE.seed(os.urandom(32)))


def new_nonce() -> str:
    """Return 64 random bits as text."""
    return f"{DICE.getrandbits(64):016x}"


def owner_of(token: str) -> Owner | None:
    """Return who made `token`; None for a grant or anything that is no token of ours."""
    parts = token.split("|")
    if len(parts) != 5 or not all(part.isdigit() for part in parts[1:4]):
        return None
    return Owner(parts[0], int(parts[1]), int(parts[2]), int(parts[3]) / 1e9)


def in_words(token: str) -> str:
    """Return where the maker of `token` runs; the token itself when it is none of ours."""
    owner = owner_of(token)
    return f"{owner.host} process {owner.process_id}" if owner else token
