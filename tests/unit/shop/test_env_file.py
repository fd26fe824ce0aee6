"""A `.env` of production in the checkout counts for production alone: the demo, floods and tests take nothing of it.
Each case is a process of its own, in a copy of what the settings need. Needs no server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OF_PRODUCTION = """
FAIRDROP_ENV=development
ALLOWED_HOSTS=shop.example
FAIRDROP_PUBLIC_URL=https://shop.example
FAIRDROP_MAIL_URL=smtp+tls://shop:word@mx.example:587
FAIRDROP_LOG_KEYS=2026-03-01T00:00:00Z=of-production
DATABASE_URL=postgresql://fairdrop:word@db.example/fairdrop
"""
SHOW = """
import os
import shop.settings as s
print(s.ALLOWED_HOSTS, s.PUBLIC_URL, s.MAIL_URL, s.LOG_KEYS, s.DATABASE_URL, sorted(os.environ.items()))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout whose `.env` is that of production."""
    (tmp_path / "shop").mkdir()
    for path in (ROOT / "shop").glob("*.py"):
        shutil.copy(path, tmp_path / "shop")
    (tmp_path / "manage.py").touch()
    (tmp_path / ".env").write_text(OF_PRODUCTION)
    return tmp_path


def shown(checkout: Path, **environment: str) -> str:
    """Return what the settings of `checkout`, and the environment that its children would get, are."""
    return subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=checkout, env={"PATH": os.environ["PATH"], **environment}, check=True, capture_output=True, text=True,
        timeout=600,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("environment", ["development", "test"])
def test_what_is_told_to_be_no_production_takes_nothing_of_the_file(checkout: Path, environment: str) -> None:
    found = shown(checkout, FAIRDROP_ENV=environment)
    assert "example" not in found
    assert "of-production" not in found


def test_the_control_without_that_word_the_file_is_read(checkout: Path) -> None:
    found = shown(checkout)
    for value in ("['shop.example']", "https://shop.example", "@mx.example:587", "=of-production", "@db.example/"):
        assert value in found
