"""Proves that no log line shows a secret, whatever event it belongs to and wherever the secret stands in it, and that
each line is one line: JSON in production.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from inventory.records import Ticket, sign_ticket
from inventory.signing import Signer
from shop import logs
from shop.buyers import issue_buyer

ROOT = Path(__file__).resolve().parents[3]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
KEY = "a signing key of this shop, 40 characters"
BUYER, TOKEN = issue_buyer()
TICKET = sign_ticket(Signer([KEY], purpose="ticket"), Ticket(f"2a-{'q' * 22}", BUYER, 1, 1_795_343_956_000_001, 3, 7))
SIGNATURE = "0f" * 32
# Each with the part of it that nobody may see.
SECRETS = {
    f"buyer {TOKEN} came": TOKEN.rpartition(".")[2],
    f"{BUYER}.{TOKEN.rpartition('.')[2]}": TOKEN.rpartition(".")[2],
    f"ticket {TICKET}": TICKET.rpartition(".")[2],
    f"GET /links/2a-{'b' * 22}/0.{'c' * 22}/ HTTP": "c" * 22,
    f"POST /mail/stop/2a-{'b' * 22}/{'c' * 22}/ HTTP": "c" * 22,
    "Authorization: Bearer some-audit-token": "some-audit-token",
    "Cookie: a=b; __Host-sessionid=k3y0fs3ss10n; csrftoken=f0rmt0k3n": "k3y0fs3ss10n",
    "mail to anna.maria+shop@post.example failed": "anna.maria",
    "postgresql://shop:p4ssw0rd@db.example:5432/shop": "p4ssw0rd",
    "redis://:p4ssw0rd@10.0.0.1:6379/0": "p4ssw0rd",
    f"Sandbox-Signature: t=1795343956,v1={SIGNATURE}": SIGNATURE,
    f"key {KEY} is in use": KEY,
}


def events() -> Iterator[tuple[str, str, list[str]]]:
    """Give each log call of the shop: its file, its event, the names of its fields."""
    for folder in ("inventory", "shop", "workers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and is_log_call(node.func) and node.args:
                    names = [each.arg for each in node.keywords if each.arg not in (None, "exc_info")]
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", ast.unparse(node.args[0]), names  # type: ignore[misc]


def is_log_call(called: ast.expr) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and called.attr in LEVELS
        and isinstance(called.value, ast.Name)
        and called.value.id in ("log", "logger")
    )


class Lines:
    """Writes events as the shop does, and returns the lines."""

    def __init__(self, *, as_json: bool, hides: bool = True) -> None:
        config = logs.logging_config(level="DEBUG", as_json=as_json, secrets=[KEY])["formatters"]["lines"]
        shared = list(config["foreign_pre_chain"])
        processors = list(config["processors"])
        if not hides:
            shared.remove(logs.hide_secret_fields)
            processors.pop()
        formatter = structlog.stdlib.ProcessorFormatter(processors=processors, foreign_pre_chain=shared)
        self._stream = io.StringIO()
        handler = logging.StreamHandler(self._stream)
        handler.setFormatter(formatter)
        self.library = logging.getLogger("library")
        self.library.handlers, self.library.propagate = [handler], False
        self.shop = structlog.wrap_logger(
            self.library, processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
            wrapper_class=structlog.stdlib.BoundLogger,
        )  # fmt: skip

    def take(self) -> str:
        """Return what was written since the last call; fail unless it is one line."""
        text = self._stream.getvalue()
        self._stream.seek(0)
        self._stream.truncate()
        assert text.count("\n") == 1
        return text


def write_everywhere(lines: Lines, event: str, names: list[str], text: str) -> Iterator[str]:
    """Write an event with `text` in each of its fields, in the event, in a library's words, in an error; give lines."""
    for name in names:
        values: list[Any] = [text, [text, 1], {"inner": [text]}, ValueError(text)]
        for value in values:
            lines.shop.warning(event, **{name: value})
            yield lines.take()
    lines.shop.warning(f"{event} {text}")
    yield lines.take()
    lines.library.warning("%s\n%s", event, text)
    yield lines.take()
    try:
        raise ValueError(text)
    except ValueError:
        lines.shop.exception(event)
    yield lines.take()


@pytest.mark.parametrize("as_json", [True, False])
def test_no_event_shows_a_secret_wherever_it_stands(as_json: bool) -> None:
    lines, found = Lines(as_json=as_json), list(events())
    assert len(found) > 40
    for where, event, names in found:
        for line in write_everywhere(lines, event, names, " , ".join(SECRETS)):
            assert not [secret for secret in SECRETS.values() if secret in line], (where, line)
            assert not as_json or json.loads(line)["event"]
    for text, secret in SECRETS.items():  # alone, too: no neighbour helps
        assert not [line for line in write_everywhere(lines, "event", ["field"], text) if secret in line]


def test_control_without_the_processors_each_secret_is_shown() -> None:
    lines = Lines(as_json=True, hides=False)
    for text, secret in SECRETS.items():
        assert all(secret in line for line in write_everywhere(lines, "event", ["field"], text))


@pytest.mark.parametrize("name", ["password", "Authorization", "buyer_token", "ticket", "set_cookie", "session_key"])
def test_a_field_that_is_named_as_a_secret_is_hidden_whatever_it_is(name: str) -> None:
    lines = Lines(as_json=True)
    lines.shop.warning("event", **{name: "hunter2", "more": {name: "hunter2", "n": 1}}, tickets=3)
    assert json.loads(lines.take()) | {"timestamp": ""} == {
        "event": "event", name: "...", "more": {name: "...", "n": 1}, "tickets": 3, "level": "warning",
        "logger": "library", "timestamp": "",
    }  # fmt: skip


def test_what_is_no_secret_is_shown() -> None:
    lines = Lines(as_json=True)
    fields = {
        "sku": "vase-2", "request": f"2a-{'q' * 22}", "buyer": BUYER, "path": "/sales/vase-drop/?page=2", "fence": 17,
        "seconds": 0.25, "error": "connection to 10.0.0.1:6379 refused", "host": "a@b", "lock": "fd:{vase}:lock",
    }  # fmt: skip
    lines.shop.warning("event", **fields)
    assert fields.items() <= json.loads(lines.take()).items()


def test_one_line_is_let_through_in_so_many_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    seldom = logs.Seldom(seconds=1.0)
    assert [seldom.count() for _ in range(5)] == [1, 0, 0, 0, 0]
    now = 101.0
    assert [seldom.count() for _ in range(2)] == [5, 0]


PRODUCTION_LINES = """
import logging.config, structlog
from shop.logs import logging_config
logging.config.dictConfig(logging_config(level="WARNING", as_json=True))
structlog.get_logger("workers.management.commands.run_worker").info("worker started", worker="settler")
logging.getLogger("uvicorn.error").error("two\\nlines")
logging.getLogger("uvicorn.error").info("not shown")
structlog.get_logger("shop.http").info("not shown")
"""


def test_a_workers_first_line_and_the_servers_own_are_json() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PRODUCTION_LINES], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["worker started", "two\nlines"]
