"""A blank value is the default. Most cases are a process of their own. Needs no server."""

from __future__ import annotations

from pathlib import Path

from tests.unit.shop.test_settings import start


def test_blank_addresses_are_the_defaults_too(tmp_path: Path) -> None:
    """A blank CACHE_URL broke every page with a session; a blank folder let the secret be written into this one."""
    code = "import shop.settings as s; print(s.CACHE_URL == s.REDIS_URL, s.STATE_DIR == s.BASE_DIR / '.fairdrop')"
    started = start(tmp_path, "-c", code, CACHE_URL="", FAIRDROP_STATE_DIR="")
    assert started.stdout == "True True\n", started.stderr
