"""Finds a place for the files of a server that runs as another account, where that account can reach them.
Never changes the rights of a folder that was there before; only of the data folder, which belongs to the servers.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "fairdrop-postgres-"
LINK, OWNER, PROGRAM = "elsewhere", "belongs-to", "postgres-program"
PASS = 0o711  # other accounts walk through, and list nothing


def reachable_place(data_dir: Path) -> Path:
    """Return `data_dir`, or when a folder above it is closed to other accounts, one of our own for temporary files.

    The second is found again by a link in `data_dir`. One whose link is gone is removed here.
    """
    if is_open(data_dir):
        data_dir.chmod(PASS)
        return data_dir
    link = data_dir / LINK
    if link.is_symlink() and _is_own(link.readlink()):
        return link.readlink()
    _remove_forgotten()
    link.unlink(missing_ok=True)
    place = Path(tempfile.mkdtemp(prefix=PREFIX))
    place.chmod(PASS)
    link.symlink_to(place)
    (place / OWNER).write_text(str(link))
    return place


def reachable_program(folder: Path, *, place: Path) -> Path:
    """Return the folder of programs, or when it is closed to other accounts, a copy of it in `place`."""
    if is_open(folder / "postgres"):
        return folder
    package = folder.parent.parent
    copy = place / PROGRAM
    shutil.rmtree(copy, ignore_errors=True)  # a newer one may have been installed
    copied = shutil.copytree(folder.parent, copy / package.name / folder.parent.name, symlinks=True)
    # A wheel keeps libraries next to its package, and its programs look for them there.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name)
    return copied / folder.name


def is_open(path: Path) -> bool:
    """Say whether every account may walk through all the folders above `path`."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


def _is_own(place: Path) -> bool:
    """Say whether `place` is there and ours: anybody may make a folder where temporary files go."""
    with suppress(FileNotFoundError):
        found = place.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False


def _remove_forgotten() -> None:
    for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = place / OWNER
        if _is_own(place) and owner.exists():
            link = Path(owner.read_text())
            if not link.is_symlink() or link.readlink() != place:
                shutil.rmtree(place, ignore_errors=True)
