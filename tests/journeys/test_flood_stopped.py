"""Stop in Locust's page ends a flood of the real shop within seconds, unjudged, and no run takes another one's place.
Real Locust, asked through its page; a sale whose holds last far longer than the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, expect

from loadtest.users.crowd import read_progress
from shop.sales.catalogue import SaleCard
from tests.journeys.visits import DESKTOP, Visit
from tests.support.http_calls import Answer, Caller
from tests.support.servers.shop_processes import ROOT, SELLING, shop_process
from tests.support.shown_sales import shown_sales
from tests.support.waiting import Timed, assert_quickest_within, timed, wait_until
from workers.embedded.server import free_port

TOKEN = "audit-token-of-a-stopped-flood"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# On a machine that is free.
STOP_SECONDS = 5.0
# Far longer than any stop takes; a run that is not stopped waits for it.
HOLD_SECONDS = 3600
STOPPED_EARLY = "stopped early, not judged"


@pytest.fixture(scope="module")
def environment(lasting_environment: dict[str, str]) -> dict[str, str]:
    """The environment of the shop, on the test database, and of the flood."""
    return {**lasting_environment, "FAIRDROP_AUDIT_TOKEN": TOKEN}


@pytest.fixture(scope="module")
def shop(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A shop that decides and takes payments."""
    folder = tmp_path_factory.mktemp("shop")
    with shop_process(environment, folder=folder, workers=(*SELLING, "notary")) as caller:
        yield caller


@pytest.fixture
def card(shop: Caller, shop_database: None, new_sku: Callable[[], str]) -> SaleCard:
    """A sale whose units are held long after this test."""
    return shown_sales(shop, new_sku)(units=20, hold_seconds=HOLD_SECONDS)


@contextmanager
def locust(environment: Mapping[str, str], folder: Path, *words: str) -> Iterator[Caller]:
    """Call the page of a Locust of its own."""
    port, workers = free_port(), words.count("--processes")
    command = [sys.executable, "-m", "locust", "--web-host", "127.0.0.1", "--web-port", str(port), *words]
    command += ["--history", str(folder), "--buyers", "100000", "--attempts", "100000"]
    if workers:
        bus = str(free_port())
        command += ["--master-bind-host", "127.0.0.1", "--master-bind-port", bus, "--master-port", bus]
    with (folder.parent / "locust.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True, env=dict(environment)
        )
    page = Caller(port)
    try:
        wait_until(lambda: _is_ready(page, workers=2 * workers), timeout_seconds=600, what="Locust is there")
        yield page
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def _is_ready(page: Caller, *, workers: int) -> bool:
    try:
        return int(page.get("/stats/requests").json().get("worker_count", 0)) >= workers
    except OSError:
        return False


def start(page: Caller, shop: Caller, card: SaleCard, folder: Path, *more: tuple[str, str]) -> Path:
    """Start a run from the page's form; return its folder when its buyers have asked."""
    before = runs_with_buyers(folder)
    fields = {"user_count": "20", "spawn_rate": "20", "host": f"http://127.0.0.1:{shop.port}", "sales": card.slug}
    assert page.call("POST", "/swarm", body=urlencode([*fields.items(), *more]), headers=FORM).json()["success"]
    (fresh,) = wait_until(lambda: runs_with_buyers(folder) - before, what="buyers have asked")
    return fresh


def runs_with_buyers(folder: Path) -> set[Path]:
    runs = {path.parent for path in folder.glob("*/run.json")}
    return {run for run in runs if read_progress(run).attempts > 0}


def stop(page: Caller) -> tuple[Answer, Timed]:
    """Press Stop; return what the page answered, which it does when the run has ended, and after how long."""
    return timed(lambda: page.call("POST", "/stop", timeout_seconds=900))


def wait_until_over(page: Caller) -> None:
    wait_until(lambda: page.get("/stats/requests").json()["state"] in ("stopped", "ready"), what="it is over")


@pytest.mark.parametrize("words", [(), ("--processes", "2")], ids=["one process", "two workers"])
def test_stop_ends_a_run_within_seconds_and_each_run_has_its_folder(
    shop: Caller, environment: dict[str, str], tmp_path: Path, card: SaleCard, chromium: Browser, words: tuple[str, ...]
) -> None:
    folder, took, runs = tmp_path / "flood", list[Timed](), list[Path]()
    demo = folder / "report.html"
    folder.mkdir()
    demo.write_text("the demo's")
    with locust(environment, folder, *words) as page:
        for _ in range(3):  # one of them meets a machine that is not busy with something else
            runs.append(start(page, shop, card, folder))
            answer, seconds = stop(page)
            took.append(seconds)
            assert answer.json() == {"success": True, "message": STOPPED_EARLY}
            assert page.get("/fairdrop/sales.json").json()["state"] == STOPPED_EARLY
            wait_until_over(page)
        visit = Visit.open(chromium, f"http://127.0.0.1:{page.port}", viewport=DESKTOP)
        listed_runs = visit.page.get_by_role("row", name="Stopped early, not judged.")

        def all_listed() -> bool:
            visit.go("/fairdrop/runs/")
            return listed_runs.count() == 3

        wait_until(all_listed, what="each is in the list")
        visit.check_page()
        visit.picture("flood-runs")
        visit.page.get_by_role("row", name="Stopped early").get_by_role("link").first.click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Stopped early, not judged.")
        visit.check_page()
        visit.picture("flood-stopped")
        visit.close()
        assert visit.faults == []
        assert page.get("/fairdrop/runs/../report.html").status == 404
    assert_quickest_within(STOP_SECONDS, took)
    assert min(each.seconds for each in took) < HOLD_SECONDS / 60, took  # whatever the machine does
    assert len(set(runs)) == 3
    listed = wait_until(lambda: (text := (folder / "index.html").read_text()).count("/report.html") >= 3 and text)
    for run in runs:
        assert json.loads((run / "run.json").read_text())["stopped_early"] is True
        assert not (run / "verdict.json").exists()
        assert list(run.glob("history-*.jsonl"))
    assert all(f'href="{run.name}/report.html"' in listed for run in runs)
    assert demo.read_text() == "the demo's"


def test_a_run_that_ends_by_itself_is_judged(
    shop: Caller, environment: dict[str, str], tmp_path: Path, card: SaleCard
) -> None:
    """The control: only Stop is early. It stands in the same list."""
    folder = tmp_path / "flood"
    with locust(environment, folder) as page:
        run = start(page, shop, card, folder, ("buyers", "5"), ("attempts", "5"), ("mix", "honest"))
        index = folder / "index.html"
        wait_until(
            lambda: index.exists() and (run / "verdict.json").exists() and run.name in index.read_text(),
            timeout_seconds=600,
            what="it is judged and listed",
        )
    assert json.loads((run / "verdict.json").read_text())["sales"][0]["sale"] == card.slug
    assert "stopped_early" not in json.loads((run / "run.json").read_text())
    assert "Stopped early" not in (folder / "index.html").read_text()
    assert f'href="{run.name}/report.html"' in (folder / "index.html").read_text()


def kinds_of(run: Path) -> dict[str, int]:
    """Return who came to a run, by weight."""
    return dict(json.loads((run / "run.json").read_text())["kinds"])


def ratios(page: Caller) -> set[str]:
    """Return the user classes that Locust's page shows at work."""
    return {name for name, share in page.get("/tasks").json()["per_class"].items() if share["ratio"] > 0}


def test_the_class_picker_chooses_who_comes(
    shop: Caller, environment: dict[str, str], tmp_path: Path, card: SaleCard
) -> None:
    folder = tmp_path / "flood"
    with locust(environment, folder, "--class-picker") as page:
        shown = page.get("/").body.decode()
        assert all(name in shown for name in ("Honest", "Impatient", "Bot", "Hoarder", "LatePayer", "Restorer"))
        run = start(page, shop, card, folder, ("user_classes", "Bot"), ("user_classes", "Hoarder"))
        assert kinds_of(run) == {"bot": 1, "hoarder": 2}
        wait_until(lambda: ratios(page) == {"Bot", "Hoarder"}, what="both are at work")
        stop(page)
        wait_until_over(page)
        settings = json.dumps({"user_class_name": "Bot", "weight": 5})
        assert page.call("POST", "/user", body=settings, headers={"Content-Type": "application/json"}).status == 201
        run = start(page, shop, card, folder, ("user_classes", "Bot"), ("user_classes", "Hoarder"))
        assert kinds_of(run) == {"bot": 5, "hoarder": 2}
        stop(page)


def test_tags_choose_who_comes(shop: Caller, environment: dict[str, str], tmp_path: Path, card: SaleCard) -> None:
    folder = tmp_path / "flood"
    with locust(environment, folder, "--tags", "watcher", "bot") as page:
        run = start(page, shop, card, folder)
        assert kinds_of(run) == {"bot": 1, "watcher": 1}
        wait_until(lambda: ratios(page) == {"Bot", "Watcher"}, what="both are at work")
        stop(page)
