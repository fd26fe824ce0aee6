"""Says which version of Fairdrop runs: that of pyproject.toml, the one place where it is written. Never asks git."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

PROJECT_FILE = Path(__file__).resolve().parents[2] / "pyproject.toml"
DISTRIBUTION = "fairdrop"


def project_version() -> str:
    """Return the version of this checkout or image, or of the installed wheel; '' when it is not known."""
    if PROJECT_FILE.exists():
        return str(tomllib.loads(PROJECT_FILE.read_text())["project"]["version"])
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""
