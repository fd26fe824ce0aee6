"""PostgreSQL is opened in one file, and by the server that the demo starts; the same file has every advisory lock."""

from __future__ import annotations

import re

from inventory.postgres import AdvisoryLock
from tests.rules.sources import FLOORS, ROOT, python_files

# Migrations write numbers; 0036 replaces this one.
NUMBERED = {"shop/migrations/0031_what_goes_with_its_time.py": {"7305118"}}
DOORS = {"inventory/postgres.py", "workers/embedded/postgres.py"}


def test_only_its_door_opens_postgresql() -> None:
    files = python_files("inventory", "shop", "workers")
    found = {str(path.relative_to(ROOT)) for path in files if re.search(r"psycopg\.connect\(", path.read_text())}
    assert found == DOORS


def test_every_advisory_lock_has_its_number_in_one_file() -> None:
    """A duty whose number is another one's is left undone while that one works, and nothing says so."""
    keys: dict[str, set[str]] = {}
    migrations = [path for floor in FLOORS for path in (ROOT / floor).glob("**/migrations/*.py")]
    assert {path.parent.parent.name for path in migrations} >= {"inventory", "shop", "salelog", "stripe"}
    for path in [*python_files(*FLOORS), *migrations]:
        if found := set(re.findall(r"pg_\w*advisory\w*\(([^,)]*)", path.read_text())):
            keys[str(path.relative_to(ROOT))] = found
            assert path.parent.name == "migrations" or "AdvisoryLock" in path.read_text(), path
    assert {path: found for path, found in keys.items() if found != {"%s"}} == NUMBERED


def test_the_function_that_deletes_acts_has_the_number_that_is_written() -> None:
    migration = (ROOT / "shop/migrations/0036_acts_have_their_own_lock.py").read_text()
    assert f'NUMBERS = ("{AdvisoryLock.NOTARY}", "{AdvisoryLock.OLD_ACTS}")' in migration
