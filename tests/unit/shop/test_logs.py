"""Proves that no log line shows a secret, whatever event it belongs to and wherever the secret stands in it, that each
line is one line, JSON in production from the first one on, and that a repeated fault writes a bounded number of them.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from inventory.records import Ticket, sign_ticket
from inventory.signing import Signer
from shop import logs
from shop.buyers import issue_buyer
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
KEY = "a signing key of this shop, 40 characters"
BUYER, TOKEN = issue_buyer()
TICKET = sign_ticket(Signer([KEY], purpose="ticket"), Ticket(f"2a-{'q' * 22}", BUYER, 1, 1_795_343_956_000_001, 3, 7))
SIGNATURE = "0f" * 32
SIGNED_TICKET = f"fdt2.{'p' * 250}.{'s' * 400}"
# Each with the part of it that nobody may see.
SECRETS = {
    f"buyer {TOKEN} came": TOKEN.rpartition(".")[2],
    f"{BUYER}.{TOKEN.rpartition('.')[2]}": TOKEN.rpartition(".")[2],
    f"ticket {TICKET}": TICKET.rpartition(".")[2],
    f"ticket {SIGNED_TICKET}": "p" * 20,
    f"with {SIGNED_TICKET}": "s" * 20,
    f"GET /links/2a-{'b' * 22}/0.{'c' * 22}/ HTTP": "c" * 22,
    f"POST /mail/stop/2a-{'b' * 22}/{'c' * 22}/ HTTP": "c" * 22,
    "Authorization: Bearer some-audit-token": "some-audit-token",
    "Cookie: a=b; __Host-sessionid=k3y0fs3ss10n; csrftoken=f0rmt0k3n": "k3y0fs3ss10n",
    "mail to anna.maria+shop@post.example failed": "anna.maria",
    "postgresql://shop:p4ssw0rd@db.example:5432/shop": "p4ssw0rd",
    "redis://:p4ssw0rd@10.0.0.1:6379/0": "p4ssw0rd",
    f"Sandbox-Signature: t=1795343956,v1={SIGNATURE}": SIGNATURE,
    f"key {KEY} is in use": KEY,
    "host=db.example user=shop password=p4ssw0rd dbname=shop": "p4ssw0rd",
    "POST csrfmiddlewaretoken=f0rmt0k3n&otp_token=271828 refused": "271828",
    "otpauth://totp/Fairdrop:anna?secret=JBSWY3DPEHPK3PXP&issuer=Fairdrop": "JBSWY3DPEHPK3PXP",
    "Invalid API Key provided: sk_live_51HxQ2abcdefgh": "51HxQ2abcdefgh",
    "rk_test_51HxQ2abcdefgh and whsec_9mXcbaabcdefgh": "9mXcbaabcdefgh",
    "pi_3MtwBwLkdIwHu7ix_secret_YrKJUKribcBjcG8HVhfZluoGH": "YrKJUKribcBjcG8HVhfZluoGH",
    "null value in column\nDETAIL:  Failing row contains (7, Anna O'Brien, Mill Lane 3, null).": "Mill Lane 3",
}
# The fields of a delivery address (shop/orders/deliveries.py), which nothing but its table has.
ADDRESS_FIELDS = {"name", "lines", "postcode", "city", "country", "street", "phone", "email"}


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


def test_no_event_has_a_field_of_a_delivery_address() -> None:
    found = {(where.partition(":")[0], name) for where, _, names in events() for name in ADDRESS_FIELDS & set(names)}
    # The name of a difference between the books.
    assert found == {("workers/reconciler/report.py", "name")}


SECRET_NAMES = (
    *("password", "Authorization", "buyer_token", "ticket", "set_cookie", "session_key", "otp_token", "recovery_codes"),
    *("credential", "challenge", "email", "postcode", "client_secret"),
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_field_that_is_named_as_a_secret_is_hidden_whatever_it_is(name: str) -> None:
    lines = Lines(as_json=True)
    more = {name: ["hunter2"], "n": 1, "each": [{name: "hunter2"}]}
    lines.shop.warning("event", **{name: "hunter2", "more": more}, tickets=3)
    assert json.loads(lines.take()) | {"timestamp": ""} == {
        "event": "event", name: "...", "more": {name: "...", "n": 1, "each": [{name: "..."}]}, "tickets": 3,
        "level": "warning", "logger": "library", "timestamp": "",
    }  # fmt: skip


def test_what_is_no_secret_is_shown() -> None:
    lines = Lines(as_json=True)
    fields = {
        "sku": "vase-2", "request": f"2a-{'q' * 22}", "buyer": BUYER, "path": "/sales/vase-drop/?page=2", "fence": 17,
        "seconds": 0.25, "error": "connection to 10.0.0.1:6379 refused", "host": "a@b", "lock": "fd:{vase}:lock",
    }  # fmt: skip
    lines.shop.warning("event", **fields)
    assert fields.items() <= json.loads(lines.take()).items()


PRODUCTION_LINES = """
import logging.config, structlog
from shop.logs import logging_config
logging.config.dictConfig(logging_config(level="WARNING", as_json=True))
structlog.get_logger("workers.management.commands.run_worker").info("worker started", worker="settler")
structlog.get_logger("workers.reconciler.retention").info("kept long enough", action="retention")
structlog.get_logger("workers.reconciler.retirement").info("not shown")
logging.getLogger("uvicorn.error").error("two\\nlines")
logging.getLogger("uvicorn.error").info("not shown")
structlog.get_logger("shop.http").info("not shown")
"""


def test_a_workers_first_line_what_was_deleted_and_the_servers_own_are_json() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PRODUCTION_LINES], cwd=ROOT, capture_output=True, text=True, check=True, timeout=600
    )
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["worker started", "kept long enough", "two\nlines"]


REPEATED = """
import logging.config, structlog, sys
from shop.logs import logging_config
config = logging_config(level="INFO", as_json=True)
if "unbounded" in sys.argv:
    del config["handlers"]["console"]["filters"]
logging.config.dictConfig(config)
log = structlog.get_logger("workers.settler")
for number in range(500):
    log.warning("away", action="settle_retry", number=number)
    log.info("looked")
    logging.getLogger("library").error("%s failed", number)
log.warning("another place", action="lock_lost")
"""


def test_a_repeated_fault_writes_so_many_lines_and_then_how_many_more_there_were() -> None:
    lines = json_lines("-c", REPEATED)
    written = [line for line in lines if line.get("action") == "settle_retry"]
    assert [line["number"] for line in written] == list(range(logs.REPEATED_LINES))
    assert sum(line["event"].endswith(" failed") for line in lines) == logs.REPEATED_LINES
    # What an operator asked for, and what another place says, is written.
    assert sum(line["event"] == "looked" for line in lines) == 500
    assert [line["event"] for line in lines if line.get("action") == "lock_lost"] == ["another place"]
    left_out = {line["of"]: (line["about"], line["left_out"]) for line in lines if line["event"] == "lines left out"}
    more = 500 - logs.REPEATED_LINES
    assert left_out == {"workers.settler": ("settle_retry", more), "library": ("%s failed", more)}


def test_control_without_the_bound_every_line_is_written() -> None:
    lines = json_lines("-c", REPEATED, "unbounded")
    assert sum(line.get("action") == "settle_retry" for line in lines) == 500


def test_after_a_while_a_place_may_write_again_and_what_was_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now, bound = 100.0, logs.Bounded(limit=2, seconds=60.0)
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now))
    record = logging.LogRecord("any", logging.WARNING, "settler.py", 7, "away", None, None)
    assert [bound.filter(record) for _ in range(4)] == [True, True, False, False]
    now = 160.0
    assert [bound.filter(record) for _ in range(3)] == [True, True, False]
    with structlog.testing.capture_logs() as told:
        bound.report()
        bound.report()
    assert [(each["about"], each["left_out"]) for each in told if "about" in each] == [("away", 3)]


def test_what_was_left_out_is_said_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = logs.Bounded(limit=1, seconds=0.01)
    # However long the machine stands still between the two lines, both fall within the time of one.
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: 100.0))
    record = logging.LogRecord("any", logging.ERROR, "settler.py", 7, "away", None, None)
    with structlog.testing.capture_logs() as told:
        assert [bound.filter(record), bound.filter(record)] == [True, False]
        wait_until(lambda: [each for each in told if each.get("action") == "lines_left_out"], what="it says so")


def json_lines(*command: str, **changes: str) -> list[dict[str, Any]]:
    """Run Python with `command` in production; return what it wrote, each line of which must be JSON."""
    ran = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=600,
        env={**os.environ, "FAIRDROP_ENV": "production", **changes},
    )  # fmt: skip
    return [json.loads(line) for line in (ran.stdout + ran.stderr).splitlines()]


@pytest.mark.parametrize("command", [["run_worker", "settler"], ["run_web"]])
def test_a_process_that_cannot_read_its_settings_says_so_in_one_line(command: list[str]) -> None:
    (line,) = json_lines("manage.py", *command, SECRET_KEY="short")
    assert (line["level"], line["action"]) == ("critical", "process_failed")
    assert "SECRET_KEY must have at least 50 characters" in line["exception"]


def test_control_a_command_that_people_give_fails_as_python_does() -> None:
    ran = subprocess.run(
        [sys.executable, "manage.py", "migrate"], cwd=ROOT, capture_output=True, text=True, timeout=600,
        env={**os.environ, "FAIRDROP_ENV": "production", "SECRET_KEY": "short"},
    )  # fmt: skip
    assert ran.stderr.startswith("Traceback (most recent call last):\n")


FAILURES = """
import sys, threading, warnings
from shop.logs import logging_config, write_failures
write_failures()
def fail(): raise ValueError("a ticket=abcdef was refused")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
warnings.warn("no folder\\nfor pictures")
fail()
"""


def test_what_ends_a_thread_or_the_process_is_one_line_without_secrets() -> None:
    *lines, last = json_lines("-W", "always", "-c", FAILURES)
    assert [line["action"] for line in (lines[0], last)] == ["process_failed"] * 2
    assert all("ticket=... was refused" in line["exception"] for line in (lines[0], last))
    assert [line["logger"] for line in lines[1:]] == ["py.warnings"]
