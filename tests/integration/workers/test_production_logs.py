"""In production every line of every process is one JSON object, from its first to its last: real processes, at the
level that says most, given what makes them speak.
"""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support.http_calls import answer_to
from tests.support.servers.shop_processes import running_process, web_process
from tests.support.waiting import wait_until

WORKERS = ("settler", "expirer", "payments", "reconciler", "sandbox", "mailer", "notary")
KEYS = {
    name: hashlib.sha256(name.encode()).hexdigest()
    for name in ("SECRET_KEY", "FAIRDROP_TOKEN_KEYS", "FAIRDROP_AUDIT_TOKEN", "FAIRDROP_SANDBOX_SECRET")
}
PRODUCTION = {
    **KEYS,
    "FAIRDROP_ENV": "production",
    "ALLOWED_HOSTS": "127.0.0.1",
    "FAIRDROP_PUBLIC_URL": "http://127.0.0.1:8080",
    "FAIRDROP_BEHIND_TLS": "false",
    "FAIRDROP_TRUSTED_PROXIES": "1",
    "FAIRDROP_SANDBOX_ALLOWED": "true",
    "LOG_LEVEL": "DEBUG",
}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log. Fails for one that is not an object with all that a line has."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        assert {"event", "level", "logger", "timestamp"} <= line.keys(), line
    return lines


def test_each_line_of_the_web_process_is_json_also_those_of_its_server(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    with web_process({**process_environment, **PRODUCTION}, folder=tmp_path) as web:
        assert web.get("/", headers={"Host": "evil.example"}).status == 400
        assert web.get("/no-such").status == 503  # nobody has collected the static files that its page names
        assert web.send_raw(b"nonsense\r\n\r\n").status == 400
        asked = answer_to(lambda: web.call("POST", "/api/v1/sales/no-such/requests", body=b"{"))  # 503: cold
        assert asked.status in (401, 404)
        assert web.get("/api/v1/about").status == 401
    lines = lines_of(tmp_path / "web.log")
    assert {"uvicorn.error", "shop.http", "django_structlog.middlewares.request"} <= {line["logger"] for line in lines}
    assert not [key for key in KEYS.values() if key in (tmp_path / "web.log").read_text()]


def test_each_line_of_a_worker_is_json_from_the_first(process_environment: dict[str, str], tmp_path: Path) -> None:
    with ExitStack() as running:
        for name in WORKERS:
            command = [sys.executable, "manage.py", "run_worker", name]
            environment = {**process_environment, **PRODUCTION}
            running.enter_context(running_process(name, command, environment=environment, folder=tmp_path))
        for name in WORKERS:
            wait_until(lambda path=tmp_path / f"{name}.log": "worker_started" in path.read_text(), what=name)
    for name in WORKERS:
        first = lines_of(tmp_path / f"{name}.log")[0]
        assert (first["action"], first["worker"]) == ("worker_started", name)


def test_the_control_elsewhere_lines_are_for_people(process_environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "run_worker", "mailer"]
    with running_process("mailer", command, environment=process_environment, folder=tmp_path):
        text = wait_until((tmp_path / "mailer.log").read_text, what="it says that it began")
    assert text.startswith("event='worker started' action='worker_started'")
