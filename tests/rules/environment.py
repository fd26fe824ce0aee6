"""Reads from the sources which environment variables the settings read and which ones .env.example explains.
Decides nothing.
"""

from __future__ import annotations

import ast
import re

from tests.rules.sources import ROOT

# Calls of settings.py whose first argument is the name of a variable.
READERS = {"str", "list", "secret", "flag", "number", "rate"}


def variables_of_settings() -> set[str]:
    """Return every variable that shop/settings.py reads."""
    tree = ast.parse((ROOT / "shop" / "settings.py").read_text())
    return {call.args[0].value for call in ast.walk(tree) if _reads_a_variable(call)}


def _reads_a_variable(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
        return False
    called = node.func
    of_env = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "env"
    name = called.attr if of_env else getattr(called, "id", "")
    return (of_env or name in ("secret", "flag", "number", "rate")) and name in READERS


def variables_of_example() -> set[str]:
    """Return every variable that .env.example explains, set or commented out."""
    return set(re.findall(r"^#?([A-Z][A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), flags=re.MULTILINE))
