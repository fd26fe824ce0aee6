"""The four ways to take a layer of a guard away: from a statement, a script, a function, the tables. Pure of any guard.
Each must find exactly what it takes away: a mutant that changes nothing is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from inventory.postgres import Cursor
from inventory.redis import scripts

# As setattr, so that a test can have it undone.
Patch = Callable[[Any, str, Any], object]


class MutantUnmade(Exception):
    """The guard is written otherwise now: this mutant would change nothing, or something else."""


def instead(text: str, part: str, other: str) -> str:
    """Return `text` with `other` in the place of `part`. Raises MutantUnmade unless `part` is there exactly once."""
    if text.count(part) != 1:
        raise MutantUnmade(f"{part!r} is there {text.count(part)} times, not once")
    return text.replace(part, other)


def run_instead(script: str, text: str, *, patch: Patch) -> None:
    """Let this process run `text` for scripts/`script`.lua, under a digest of its own; no file is written."""
    changed, real = {script: text}, scripts.script_text

    def script_text(name: str) -> str:
        return changed.get(name) or real(name)

    def script_digest(name: str) -> str:
        return hashlib.sha1(script_text(name).encode(), usedforsecurity=False).hexdigest()

    patch(scripts, "script_text", script_text)
    patch(scripts, "script_digest", script_digest)


@dataclass(frozen=True, kw_only=True)
class Text:
    """A part of a module's text: `module`.`name` without `part`, or with `other` in its place."""

    says: str
    module: str
    name: str
    part: str
    other: str = ""

    def take_away(self, patch: Patch) -> None:
        """Change the text in this process."""
        module = import_module(self.module)
        patch(module, self.name, instead(getattr(module, self.name), self.part, self.other))


@dataclass(frozen=True, kw_only=True)
class Script:
    """A part of scripts/`script`.lua."""

    says: str
    script: str
    part: str
    other: str = ""

    def take_away(self, patch: Patch) -> None:
        """Let this process run the changed script."""
        run_instead(self.script, instead(scripts.script_text(self.script), self.part, self.other), patch=patch)


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function, as one module knows it: `made` gets the real one and returns what is called in its place."""

    says: str
    module: str
    name: str
    made: Callable[[Callable[..., Any]], Callable[..., Any]]

    def take_away(self, patch: Patch) -> None:
        """Change the function in this process."""
        module = import_module(self.module)
        patch(module, self.name, self.made(getattr(module, self.name)))


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """A constraint of a table."""

    says: str
    table: str
    name: str

    def take_away_from_tables(self, cursor: Cursor) -> None:
        """Drop it; PostgreSQL refuses when it is not there."""
        cursor.execute(f"ALTER TABLE {self.table} DROP CONSTRAINT {self.name}")


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A part of a trigger's function. The trigger stays: the audit must name the effect, not that a trigger is gone."""

    says: str
    function: str
    part: str
    other: str

    def take_away_from_tables(self, cursor: Cursor) -> None:
        """Replace the function."""
        cursor.execute("SELECT pg_get_functiondef(%s::regproc)", [self.function])
        (text,) = cursor.fetchone()
        cursor.execute(instead(text, self.part, self.other))
