"""requirements/audit.sh tells three things apart: nothing known, something known, nobody answered. The source of
advisories is a server here that speaks as OSV does; pip-audit is the real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.servers.stores import ROOT
from workers.embedded.server import free_port

SCRIPT = ROOT / "requirements" / "audit.sh"
FOUND, NO_SOURCE = 1, 3
Answer = Callable[[str, int], tuple[int, Any]]


def advisory(name: str) -> dict[str, Any]:
    affected = {"package": {"name": name, "ecosystem": "PyPI"}, "ranges": []}
    return {"vulns": [{"id": f"PYSEC-0-{name}", "published": "2020-01-01T00:00:00Z", "affected": [affected]}]}


def knows(*names: str) -> Answer:
    return lambda name, _count: (200, advisory(name) if name in names else {})


def knows_until(last: int) -> Answer:
    """Answer as a source does, and break after `last` questions."""
    return lambda name, count: knows("jinja2")(name, count) if count <= last else (503, {})


class Source(BaseHTTPRequestHandler):
    """Speaks as OSV does; its server has how it answers."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked["package"]["name"])
        status, body = self.server.answer(asked["package"]["name"], len(self.server.asked))
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def source() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Source)
    server.asked = []
    server.url = f"http://127.0.0.1:{server.server_port}/v1/query"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def audit(url: str) -> subprocess.CompletedProcess[str]:
    """Audit the shop's own pins, which the image installs."""
    return subprocess.run(
        [str(SCRIPT), "requirements/base.txt"],
        env={**os.environ, "PYTHON": sys.executable, "ADVISORIES": url, "NO_PROXY": "127.0.0.1"},
        cwd="/", capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_nothing_is_known_when_a_source_that_knows_something_says_so(source: Any) -> None:
    source.answer = knows("jinja2")
    done = audit(source.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No known vulnerability in requirements/base.txt" in done.stdout
    assert {"django", "redis", "psycopg", "uvicorn"} <= set(source.asked)


def test_a_known_vulnerability_is_named(source: Any) -> None:
    source.answer = knows("jinja2", "psycopg")
    done = audit(source.url)
    assert done.returncode == FOUND, done.stdout + done.stderr
    assert "PYSEC-0-psycopg" in done.stdout
    assert "jinja2" not in done.stdout


@pytest.mark.parametrize(
    "answer",
    [knows(), lambda *_: (500, {}), knows_until(1), knows_until(4)],
    ids=["knows nothing at all", "only fails", "fails after the first", "fails in between"],
)
def test_a_source_that_cannot_be_believed_is_no_good_news(source: Any, answer: Answer) -> None:
    source.answer = answer
    done = audit(source.url)
    assert done.returncode == NO_SOURCE, done.stdout + done.stderr
    assert f"No source of advisories answered at {source.url}" in done.stderr


def test_an_address_where_nobody_listens_is_no_good_news() -> None:
    done = audit(f"http://127.0.0.1:{free_port()}/v1/query")
    assert done.returncode == NO_SOURCE, done.stdout + done.stderr
    assert "No source of advisories answered" in done.stderr
    assert "No known vulnerability" not in done.stdout
