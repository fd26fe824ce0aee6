"""Fixtures of the integration suite: one web process for all of it, and a settler for the tests that want decisions.
A test that does not ask for the settler runs without one, so what it put into the line stays there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.db import connections

from tests.http_calls import Caller
from tests.shop_processes import settler_process, web_process
from tests.waiting import wait_until
from workers.child_process import ChildProcess

if TYPE_CHECKING:
    from shop.catalogue import SaleCard

AUDIT_TOKEN = "an audit token that only these tests know"
# A sale that was made a moment ago is found at the next reading of the catalogue.
CATALOGUE_SECONDS = 5.0


@pytest.fixture(scope="session")
def shop_environment(django_db_setup: None) -> dict[str, str]:
    """Return the environment for processes that live as long as the run, on the test database."""
    name = connections["default"].settings_dict["NAME"]
    address = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}")
    return {**os.environ, "DATABASE_URL": urlunsplit(address), "FAIRDROP_AUDIT_TOKEN": AUDIT_TOKEN}


@pytest.fixture(scope="session")
def web(shop_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Return the caller of a real web process on the test database and the test Redis."""
    with web_process(shop_environment, folder=tmp_path_factory.mktemp("web")) as caller:
        yield caller


@pytest.fixture
def start_settler(
    web: Caller, shop_environment: dict[str, str], tmp_path: Path
) -> Iterator[Callable[[], ChildProcess]]:
    """Return a function that starts a settler beside the web process; it ends with the test."""
    with ExitStack() as running:
        yield lambda: running.enter_context(settler_process(shop_environment, folder=tmp_path))


@pytest.fixture
def settler(start_settler: Callable[[], ChildProcess]) -> ChildProcess:
    """Run a settler from the beginning of the test."""
    return start_settler()


@pytest.fixture
def shown_sale(web: Caller, shop_database: None, new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    """Return a function that makes a sale of its own SKU and waits until the web process shows it."""

    from tests.shopkeeping import make_sale  # here: models cannot be read before Django is set up

    def make(**terms: Any) -> SaleCard:
        card = make_sale(new_sku(), **terms)
        wait_until_shown(web, card)
        return card

    return make


def wait_until_shown(web: Caller, card: SaleCard) -> None:
    """Return when the web process knows the sale and what Redis says of its stock."""

    def shown() -> bool:
        return web.get(f"/api/v1/sales/{card.slug}").status == 200

    wait_until(shown, timeout_seconds=CATALOGUE_SECONDS, what=f"{card.slug} is shown")
