"""Every variable is explained in .env.example, and nothing is explained that does not exist."""

from __future__ import annotations

import re

from tests.rules.environment import ROOT, variables_of_example, variables_of_settings


def test_settings_read_variables_at_all() -> None:
    """The control: the reader of settings.py sees the well-known ones."""
    assert {"SECRET_KEY", "FAIRDROP_TOKEN_KEYS", "DATABASE_URL", "DEBUG", "LOG_LEVEL"} <= variables_of_settings()


def test_every_variable_of_the_settings_is_explained() -> None:
    assert variables_of_settings() - variables_of_example() == set()


def test_every_explained_variable_is_used_somewhere() -> None:
    compose = set(re.findall(r"\$\{([A-Z0-9_]+)", (ROOT / "docker-compose.yml").read_text()))
    compose |= {"COMPOSE_PROFILES"}  # its own: it takes this one from .env too
    assert variables_of_example() - variables_of_settings() - compose == set()  # make reads no .env


def test_example_holds_no_secret() -> None:
    text = (ROOT / ".env.example").read_text()
    assert re.findall(r"^[A-Z0-9_]+=.+$", text, flags=re.MULTILINE) == []
