"""Stock is written in one file, Redis and PostgreSQL are opened in one file each."""

from __future__ import annotations

import re

import pytest

from tests.rules.sources import ROOT, python_files

DOORS = {
    # what is done: (how it looks, where it may be done)
    "write stock": (
        r"(?i)(insert\s+into|update|delete\s+from)\s+inventory_stock"
        r"|\bStock(Movement)?(\.objects|\(\)).*\b(create|update|delete|save)\w*\(",
        {"inventory/ledger.py"},
    ),
    "open Redis": (
        r"^\s*(import redis\b(?!\.exceptions)|from redis\b(?!\.exceptions))",
        # embedded_valkey.py only asks a server it has just started whether it answers.
        {"inventory/redis.py", "workers/embedded_valkey.py"},
    ),
    "open PostgreSQL": (r"psycopg\.connect\(", {"inventory/database.py", "workers/embedded_postgres.py"}),
}


@pytest.mark.parametrize("what", sorted(DOORS))
def test_only_its_door_does_it(what: str) -> None:
    pattern, doors = DOORS[what]
    files = python_files("inventory", "shop", "workers")
    found = {str(path.relative_to(ROOT)) for path in files if re.search(pattern, path.read_text(), flags=re.MULTILINE)}
    assert found == doors
