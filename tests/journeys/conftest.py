"""Fixtures of the journeys in a real browser: one Chromium and one whole shop for all of them, at the end of the run.
Never skips: where no browser is, the tests fail with the command that installs it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.http_calls import Caller
from tests.support.patience import patient_redis as patient_redis
from tests.support.servers.shop_processes import HASTY_WEB, shop_process

if TYPE_CHECKING:
    from shop.sales.catalogue import SaleCard
    from tests.journeys.visits import Visit

NAMES = ("chromium", "chromium-browser", "google-chrome")
# The same browser without windows: a third less CPU.
SHELLS = ("chromium-headless-shell", "chrome-headless-shell")
# A notice that comes seconds later comes after the page to which the buyer is led back, also on a machine that is slow.
SLOWER_NOTICE = """
from shop.sandbox.views import CHOICES
CHOICES["slow"] = CHOICES["slow"]._replace(told_after_seconds=20.0)
"""
MISSING = "No Chromium was found. Install it: sudo apt-get install --yes chromium"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that need the whole shop at the end, whatever the order of the others.

    Its settler and expirer work on every sale there is, and a browser's event loop is in the way of asyncio.run():
    no other test may come between or after them. `make test` keeps this order (--no-loadscope-reorder).
    """
    those = {item.path for item in items if "whole_shop" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in those)  # whole files: that is what the processes of a run are given


# Not the plugin's fixtures: they begin with the first test that asks for a page, wherever in the run that is.
@pytest.fixture(scope="package")
def launch() -> Iterator[Callable[[tuple[str, ...]], Browser]]:
    """Return a function that starts the first browser of some names that is there."""
    # Playwright's loop runs in this thread, and Django would take every query for one inside a coroutine.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        with sync_playwright() as playwright, ExitStack() as stack:

            def launch_one(names: tuple[str, ...]) -> Browser:
                path = next(filter(None, map(shutil.which, names)), None)
                if path is None:
                    pytest.fail(MISSING)
                browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
                stack.callback(browser.close)
                return browser

            yield launch_one
    finally:
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
        else:
            os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@pytest.fixture(scope="package")
def whole_chromium(launch: Callable[[tuple[str, ...]], Browser]) -> Browser:
    """Return a browser for what one without windows cannot do: ask for notifications, say."""
    return launch(NAMES)


@pytest.fixture(scope="package")
def chromium(launch: Callable[[tuple[str, ...]], Browser]) -> Browser:
    """Return a browser for all other journeys."""
    return launch((*SHELLS, *NAMES))


@pytest.fixture(scope="session")
def lasting_environment(lasting_environment: dict[str, str]) -> dict[str, str]:
    """Give Redis long in the processes of the shop: no journey freezes a store."""
    return {**lasting_environment, "FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}


@pytest.fixture(scope="package")
def whole_shop(lasting_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A shop with every worker a buyer meets: settler, expirer, and the sandbox that sends its notices."""
    folder, workers = tmp_path_factory.mktemp("whole-shop"), ("settler", "expirer", "sandbox")
    web = HASTY_WEB + SLOWER_NOTICE
    with shop_process(lasting_environment, folder=folder, workers=workers, web=web) as caller:
        yield caller


@pytest.fixture
def open_sale(whole_shop: Caller, shop_database: None, new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    """Return a function that makes a sale with a picture and waits until the shop shows it."""
    from tests.journeys.visits import pictured_sales  # here: models cannot be read before Django is set up

    return pictured_sales(whole_shop, new_sku)


@pytest.fixture
def visit(chromium: Browser, whole_shop: Caller) -> Iterator[Callable[..., Visit]]:
    """Return a function that opens a browser of its own at the shop; each must end without a fault in its console."""
    from tests.journeys.visits import Visit

    opened: list[Visit] = []

    def open_one(**terms: Any) -> Visit:
        opened.append(Visit.open(chromium, f"http://127.0.0.1:{whole_shop.port}", **terms))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
    for each in opened:
        assert each.faults == []


@pytest.fixture
def staff(visit: Callable[..., Visit], shop_database: None) -> Callable[..., Visit]:
    """Return a function that opens the browser of somebody of the staff, signed in."""
    from django.conf import settings

    from tests.journeys.visits import DESKTOP
    from tests.support.staff import browser_of

    def open_one(role: str = "manager", **terms: Any) -> Visit:
        signed_in = browser_of(role).cookies[settings.SESSION_COOKIE_NAME].value
        opened = visit(**{"viewport": DESKTOP, **terms})
        cookie = {"name": settings.SESSION_COOKIE_NAME, "value": signed_in, "url": opened.root}
        opened.context.add_cookies([cookie])
        return opened

    return open_one
