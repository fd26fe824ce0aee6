"""PostgreSQL is opened in one file, and by the server that the demo starts; the same file has every advisory lock."""

from __future__ import annotations

import re

from inventory.postgres import AdvisoryLock
from tests.rules.sources import ROOT, python_files

DOORS = {"inventory/postgres.py", "workers/embedded/postgres.py"}


def test_only_its_door_opens_postgresql() -> None:
    files = python_files("inventory", "shop", "workers")
    found = {str(path.relative_to(ROOT)) for path in files if re.search(r"psycopg\.connect\(", path.read_text())}
    assert found == DOORS


def test_every_advisory_lock_has_its_number_in_one_file() -> None:
    """A duty whose number is another one's is left undone while that one works, and nothing says so."""
    files = [*python_files("inventory", "shop", "workers")]
    keys = [key for path in files for key in re.findall(r"pg_\w*advisory\w*\(([^,)]*)", path.read_text())]
    of_migrations = {key for key in keys if key.isdigit()}
    assert set(keys) - of_migrations == {"%s"}
    assert of_migrations <= {str(lock.value) for lock in AdvisoryLock}
