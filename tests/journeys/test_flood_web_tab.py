"""Locust's web page has a tab with the sales, live, also with two workers. The shop is a stub; Locust is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, expect

from tests.journeys.visits import DESKTOP, Visit
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import ROOT
from tests.support.waiting import wait_until
from workers.embedded.server import free_port

SLUG, TOTAL, HELD, SOLD = "lantern-drop", 100, 30, 60
WORKERS = 2


class StubShop(BaseHTTPRequestHandler):
    """A shop that always answers the same: two units more are given than there are, once `oversold` is set."""

    oversold = False
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        held = HELD + (12 if StubShop.oversold else 0)
        figures = {"available": 10 if not StubShop.oversold else 0, "held": held, "sold": SOLD, "queued": 7}
        sale = {"slug": SLUG, "sku": "lantern", "state": "open", "quantity": TOTAL, "per_buyer_limit": 1, **figures}
        counts = {"total": TOTAL, "waiting": 0, "in_flight": 0, **figures, "held": 0, "queued": 0, "decided": 90}
        audit = {"ok": not StubShop.oversold, "counts": counts}
        audit["invariants"] = [{"id": "I1", "name": "nothing is oversold", "ok": audit["ok"], "detail": ""}]
        answers: dict[str, Any] = {
            "/api/v1/sales": [sale],
            f"/api/v1/sales/{SLUG}": sale,
            f"/api/v1/sales/{SLUG}/audit": audit,
        }
        self._answer(answers.get(self.path))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(None)

    def _answer(self, found: Any) -> None:
        body = (found if isinstance(found, str) else json.dumps(found)).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def stub_shop() -> Iterator[str]:
    """The address of a stub of the shop."""
    StubShop.oversold = False
    with ThreadingHTTPServer(("127.0.0.1", 0), StubShop) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def locust_page(stub_shop: str, tmp_path: Path) -> Iterator[Caller]:
    """Calls Locust's web page, with two workers behind it."""
    port, bus = free_port(), free_port()
    words = ["--host", stub_shop, "--web-host", "127.0.0.1", "--web-port", str(port), "--processes", str(WORKERS)]
    words += ["--history", str(tmp_path), "--buyers", "100000", "--attempts", "100000", "--master-bind-port", str(bus)]
    words += ["--master-port", str(bus), "--stop-timeout", "0"]
    with (tmp_path / "locust.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "locust", *words], cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "FAIRDROP_AUDIT_TOKEN": "any"},
        )  # fmt: skip
    page = Caller(port)
    try:
        wait_until(lambda: _has_workers(page), timeout_seconds=600, what="Locust has its workers")
        yield page
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def _has_workers(page: Caller) -> bool:
    try:
        return bool(page.get("/stats/requests").json().get("worker_count") == WORKERS)
    except OSError:
        return False


def test_the_tab_shows_the_sales_live(chromium: Browser, stub_shop: str, locust_page: Caller) -> None:
    assert locust_page.get("/fairdrop/sales.json").json() == {"state": "ready", "gaps": 0, "sales": []}
    assert locust_page.get("/stats/requests").json()["extended_stats"] == [{"key": "fairdrop", "data": []}]
    form = urlencode({"user_count": 2, "spawn_rate": 2, "host": stub_shop})
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert locust_page.call("POST", "/swarm", body=form, headers=headers).json()["success"]
    # Locust keeps this answer for two seconds, and a page that reads "ready" shows its form and no tab.
    wait_until(
        lambda: locust_page.get("/stats/requests").json()["state"] in ("spawning", "running"),
        what="the run has begun",
    )
    visit = Visit.open(chromium, f"http://127.0.0.1:{locust_page.port}", viewport=DESKTOP)
    try:
        visit.go("/?tab=fairdrop")
        row = visit.page.get_by_role("row", name="lantern")
        expect(row).to_have_text("lantern1001030607900holds")
        visit.page.screenshot(path=_picture("flood-web-tab"))
        visit.go("/fairdrop")
        expect(visit.page.get_by_role("heading", name="lantern")).to_be_visible()
        oversold = visit.page.locator(".oversold dd")
        expect(oversold).to_have_text("0")
        visit.check_page()
        visit.picture("flood-live")
        StubShop.oversold = True
        expect(oversold).to_have_text("2")
        expect(visit.page.get_by_text("audit broken: I1")).to_be_visible()
    finally:
        visit.close()
    assert visit.faults == []
    wanted = "lantern,100,0,42,60,7,90,2,broken"
    wait_until(lambda: locust_page.get("/fairdrop/sales.csv").body.decode().splitlines()[1:2] == [wanted], what=wanted)


def _picture(name: str) -> Path:
    folder = ROOT / "out" / "screens"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.png"
