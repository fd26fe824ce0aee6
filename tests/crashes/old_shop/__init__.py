"""What a running shop of revision c612c29 left behind: its tables, its Redis, and who held tickets. Reads and loads it.

The three files were written by make.py; nothing in them was made by the present code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from inventory import redis
from tests.support.http_calls import Buyer

FOLDER = Path(__file__).resolve().parent
# The last migrations of that revision.
TARGETS = (("shop", "0006_staff_roles"), ("sandbox", "0001_charges_and_events"))
# Of a shop that never existed anywhere else.
KEYS = {
    "SECRET_KEY": "the-secret-key-of-an-old-shop-in-the-tests",
    "FAIRDROP_TOKEN_KEYS": "the-token-key-of-an-old-shop-in-the-tests",
    "FAIRDROP_SANDBOX_SECRET": "the-sandbox-secret-of-an-old-shop-in-the-tests",
}


@dataclass(frozen=True)
class Person:
    """One who asked the old shop for a unit, and what they kept of it."""

    name: str
    sale: str
    buyer: Buyer
    request_id: str
    seq: int
    ticket: str


def people() -> list[Person]:
    """Return everybody, in the order in which they asked."""
    found = []
    for row in _rows("people.jsonl"):
        buyer = Buyer(row.pop("buyer"), row.pop("token"))
        found.append(Person(**row, buyer=buyer))
    return found


def load(*, database_url: str, without: Collection[str] = ()) -> None:
    """Fill a database with the old tables, and the Redis of the settings.

    without: request ids that Redis shall not know, for a control.
    """
    text = (FOLDER / "database.sql").read_text()
    tables = re.findall(r"^INSERT INTO (public\.\w+)", text, flags=re.MULTILINE)
    with psycopg.connect(database_url) as connection:
        for act in ("DISABLE", "ENABLE"):
            for table in tables:
                connection.execute(f"ALTER TABLE {table} {act} TRIGGER USER".encode())
            if act == "DISABLE":
                connection.execute(text.encode())
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    client = redis.connect()
    redis.run_commands(client, _rows("redis.jsonl"))
    for command, key, *_ in _rows("redis.jsonl"):
        if without and command in ("HSET", "ZADD"):
            redis.run_commands(client, [("HDEL" if command == "HSET" else "ZREM", key, *without)])


def _rows(name: str) -> list[Any]:
    """Return the lines of a file after its heading."""
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()[1:]]
