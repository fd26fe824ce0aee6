"""The report of a flood in a real browser, from a file: it fits, it reads, and it asks the network for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from loadtest.report import write_report
from tests.journeys.visits import DESKTOP, PATIENCE_MS, PHONE, RULES, SCREENS, resize
from tests.support.runs.made_up_run import make_run, mark


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with two faults and a name that is too long for its column."""
    folder = make_run(tmp_path_factory.mktemp("run"), sku="lantern-" + "of-a-very-long-name-" * 4)
    mark(folder, "kill -9 settler-1", at_seconds=3)
    mark(folder, "valkey stopped for two seconds, then started again", at_seconds=6)
    return write_report(folder)


@pytest.fixture
def page(chromium: Browser, report: Path) -> Iterator[Page]:
    """The report, opened from its file; it must ask for nothing else and its console must stay silent."""
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    faults: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: faults.append(message.text))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri())
    yield opened
    context.close()
    assert faults == []
    assert asked == [report.as_uri()]


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone", "desktop"])
def test_the_report_fits_and_reads(page: Page, size: dict[str, int], scheme: str) -> None:
    resize(page, width=size["width"], height=size["height"])
    for look in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if look == "dark" else "light")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"flood-report-{size['width']}-{scheme}.png")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    # Every chart is drawn by the same template: the table of one stands for all, and each costs axe seconds.
    page.evaluate("document.querySelectorAll('figure + figure details').forEach((one) => { one.open = false; })")
    violations = Axe().run(page, options={"runOnly": RULES}).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in violations] == []


def test_the_verdict_is_seen_without_scrolling(page: Page) -> None:
    for size in (PHONE, DESKTOP):
        resize(page, width=size["width"], height=size["height"])
        box = page.get_by_role("heading", level=1).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < size["height"] / 2


def test_every_chart_has_its_drawing_and_its_figures(page: Page) -> None:
    charts = page.locator("figure")
    assert charts.count() == page.get_by_role("img").count() == 6
    for number in range(6):
        chart = charts.nth(number)
        chart.locator("summary").click()
        assert chart.locator("tbody tr").count() >= 2
        drawn = chart.locator("path").first.bounding_box()
        assert drawn is not None
        assert min(drawn["width"], chart.locator("svg").bounding_box()["width"] / 20) > 5  # type: ignore[index]
