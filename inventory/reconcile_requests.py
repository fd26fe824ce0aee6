"""Lets staff ask for the comparison of one SKU, and tells them how far it has come. Never compares anything.
Asked by the control room, answered by the reconciler process.
"""

from __future__ import annotations

import json
import time
from typing import Any

from inventory.redis import Client, as_dict, keys, run_commands, run_script

LIFE_SECONDS = 24 * 3600
# One that was said to run longer ago was broken off with its process: the next reconciler begins it again.
BROKEN_OFF_SECONDS = 120
# So often a comparison that goes on is said to run.
SAID_AGAIN_SECONDS = 30
ASKED, RUNNING, DONE, FAILED = "asked", "running", "done", "failed"
TYPES = {"state": str, "actor": str, "at": int, "detail": str}
DAMAGED = "what Redis says of it is damaged: ask again"


def ask(client: Client, sku: str, *, actor: str) -> None:
    """Ask for a comparison of `sku`; asking again before it began is asking once. Raises RedisUnavailable."""
    _write(client, sku, {"state": ASKED, "actor": actor})


def waiting(client: Client) -> dict[str, dict[str, Any]]:
    """Return what is asked for and not begun, or was broken off, by SKU. Raises RedisUnavailable."""
    (found,) = run_commands(client, [("HGETALL", keys.reconciliations())])
    asked = {sku: _read(text) for sku, text in as_dict(found).items()}
    broken_off = time.time() - BROKEN_OFF_SECONDS
    return {
        sku: each
        for sku, each in asked.items()
        if each["state"] == ASKED or (each["state"] == RUNNING and each["at"] < broken_off)
    }


def begin(client: Client, sku: str, *, actor: str) -> str:
    """Say that the comparison that `actor` asked for runs; return the text that says so. Raises RedisUnavailable."""
    return _write(client, sku, {"state": RUNNING, "actor": actor})


def go_on(client: Client, sku: str, *, running: str, actor: str) -> str:
    """Say now and then that a comparison still runs; return the text that says so, as begin(). Raises RedisUnavailable.

    What was asked for since it began stays.
    """
    if time.time() - _read(running)["at"] < SAID_AGAIN_SECONDS:
        return running
    text, key = _text({"state": RUNNING, "actor": actor}), keys.reconciliations()
    run_script(client, "mend", keys=[key, key], args=["", "", "0", "0", sku, running, text])
    return text


def end(client: Client, sku: str, *, running: str, state: str, actor: str, detail: str) -> None:
    """Say how the comparison ended whose begin() returned `running`; what was asked for since then stays.

    Raises RedisUnavailable.
    """
    text, key = _text({"state": state, "actor": actor, "detail": detail}), keys.reconciliations()
    run_script(client, "mend", keys=[key, key], args=["", "", "0", "0", sku, running, text])


def last(client: Client, sku: str) -> dict[str, Any] | None:
    """Return {state, actor, at, detail} of the last comparison asked for, at: Unix s. Raises RedisUnavailable.

    One that is damaged has failed.
    """
    (text,) = run_commands(client, [("HGET", keys.reconciliations(), sku)])
    return None if text is None else _read(text)


def _write(client: Client, sku: str, said: dict[str, Any]) -> str:
    text, key = _text(said), keys.reconciliations()
    run_commands(client, [("HSET", key, keys.checked_sku(sku), text), ("EXPIRE", key, LIFE_SECONDS)])
    return text


def _read(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
        if {name: type(said[name]) for name in TYPES} == TYPES:
            return dict(said)
    except (ValueError, TypeError, KeyError):
        pass
    return {"state": FAILED, "actor": "?", "at": 0, "detail": DAMAGED}


def _text(said: dict[str, Any]) -> str:
    return json.dumps({"detail": "", **said, "at": int(time.time())})
