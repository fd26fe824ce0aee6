"""PostgreSQL is opened in one file, and by the server that the demo starts."""

from __future__ import annotations

import re

from tests.rules.sources import ROOT, python_files

DOORS = {"inventory/postgres.py", "workers/embedded/postgres.py"}


def test_only_its_door_opens_postgresql() -> None:
    files = python_files("inventory", "shop", "workers")
    found = {str(path.relative_to(ROOT)) for path in files if re.search(r"psycopg\.connect\(", path.read_text())}
    assert found == DOORS
