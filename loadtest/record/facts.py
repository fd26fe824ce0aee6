"""Says how and on what a flood ran: command, seed, revision, hardware, versions, how the shop's stores keep data.
Never guesses: what cannot be read is left out, and the report says "not told". Never writes a token down.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from loadtest.record.expectations import RUN_FILE
from loadtest.record.files import write_whole
from loadtest.shop_api import ShopApi, ShopError

PROJECT = Path(__file__).resolve().parents[2]
GIT_TIMEOUT_SECONDS = 5.0
SECRET_OPTIONS = ("--audit-token", "--web-login")
# Set by run_flood: its own command line, which says more than the one it makes for Locust.
COMMAND_VARIABLE = "FAIRDROP_FLOOD_COMMAND"


def write_facts(folder: Path, *, api: ShopApi, wanted: dict[str, Any]) -> None:
    """Write down what is known when a run begins; wanted: what the operator asked for."""
    facts = {
        "began_unix_ns": time.time_ns(),
        "command": os.environ.get(COMMAND_VARIABLE) or command_line(),
        "host": api.host_url,
        **wanted,
        "revision": revision(PROJECT),
        "hardware": hardware(),
        "versions": {
            "project": project_version(),
            "python": platform.python_version(),
            "locust": _version_of("locust"),
        },
        "shop": _shop(api),
    }
    write_whole(folder / RUN_FILE, json.dumps(facts, indent=2) + "\n")


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what is known of a run; nothing when nothing was written, or not to the end."""
    try:
        known = json.loads((folder / RUN_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def command_line(words: list[str] | None = None) -> str:
    """Return this process's command line as one types it, without secrets and without this machine's paths."""
    given = list(sys.orig_argv if words is None else words)
    shown = []
    for before, word in zip(["", *given], given, strict=False):
        option, mark, _ = word.partition("=")
        if before in SECRET_OPTIONS:
            word = "***"
        elif option in SECRET_OPTIONS and mark:
            word = f"{option}=***"
        elif word.startswith("/"):
            word = _short(word)
        shown.append(word)
    return shlex.join(shown)


def _short(path: str) -> str:
    """Return a path as seen from the project; one that lies elsewhere by its last part."""
    place = Path(path)
    return str(place.relative_to(PROJECT)) if place.is_relative_to(PROJECT) and place != PROJECT else place.name


def hardware() -> dict[str, str]:
    """Return processor, cores, memory and system of this machine, and how busy it was."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model or platform.processor(),
        "cores": str(os.cpu_count() or ""),
        "memory": f"{psutil.virtual_memory().total / 1024**3:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load before the run": " ".join(f"{load:.2f}" for load in psutil.getloadavg()),
    }


def revision(checkout: Path) -> dict[str, Any]:
    """Return {"commit", "dirty"} of a checkout; nothing where there is no git or no checkout."""
    try:
        commit = _git(checkout, "rev-parse", "--short=12", "HEAD")
        return {"commit": commit, "dirty": bool(_git(checkout, "status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def project_version() -> str:
    """Return the version of this checkout, or of the installed wheel."""
    path = PROJECT / "pyproject.toml"
    return str(tomllib.loads(path.read_text())["project"]["version"]) if path.exists() else _version_of("fairdrop")


def _version_of(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _shop(api: ShopApi) -> dict[str, Any]:
    try:
        return api.about()
    except ShopError:
        return {}


def _git(checkout: Path, *words: str) -> str:
    command = ["git", "-C", str(checkout), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=GIT_TIMEOUT_SECONDS)
    return done.stdout.strip()
