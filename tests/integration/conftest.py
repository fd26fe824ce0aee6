"""Fixtures of the integration suite: one web process and one group of each kind of Redis for all of it, and a settler
for the tests that want decisions. A test that does not ask for the settler runs without one, so what it put into the
line stays there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.test.utils import override_settings

from tests.support.http_calls import Caller
from tests.support.patience import patient_redis as patient_redis
from tests.support.servers.server_matrix import KINDS, ServerGroups
from tests.support.servers.shop_processes import HASTY_WEB, program_with, settler_process, web_child
from workers.embedded.child_process import ChildProcess

if TYPE_CHECKING:
    from shop.sales.catalogue import SaleCard

AUDIT_TOKEN = "an audit token that only these tests know"


LASTING: list[ChildProcess] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the web process of the suite run for a test that asks for it; for all others it stands still.

    It primes every sale that its own Redis does not know; for a test that makes a Redis forget, or works on another
    one, it would put back what must be missing, and move the ordinals of the sale.
    """
    if "web" in getattr(item, "fixturenames", ()):
        signal_lasting(signal.SIGCONT)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    signal_lasting(signal.SIGSTOP)


def signal_lasting(number: signal.Signals) -> None:
    for child in LASTING:
        os.kill(child.pid, number)


@pytest.fixture(scope="session")
def server_groups() -> Iterator[ServerGroups]:
    """Keep one group of each kind of Redis for the whole run; the first kind is the server of all tests."""
    groups = ServerGroups(Path(os.environ["FAIRDROP_STATE_DIR"]), valkey_url=os.environ["REDIS_URL"])
    yield groups
    groups.close()


@pytest.fixture(params=KINDS)
def each_server(request: pytest.FixtureRequest, server_groups: ServerGroups) -> Iterator[str]:
    """Run the test once on every kind of Redis: Valkey, Debian's Redis, a Cluster, Sentinel; give the kind."""
    with override_settings(REDIS_URL=server_groups.url(request.param)):
        yield request.param


@pytest.fixture(scope="session")
def shop_environment(lasting_environment: dict[str, str]) -> dict[str, str]:
    """Return the environment for processes that live as long as the run, on the test database."""
    # No test freezes their Redis: one that does not answer waits for its turn on a busy machine.
    return {**lasting_environment, "FAIRDROP_AUDIT_TOKEN": AUDIT_TOKEN, "FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}


@pytest.fixture(scope="session")
def web(shop_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Return the caller of a real web process on the test database and the test Redis."""
    folder = tmp_path_factory.mktemp("web")
    with web_child(shop_environment, folder=folder, program=program_with(HASTY_WEB)) as (child, caller):
        LASTING.append(child)
        yield caller
        signal_lasting(signal.SIGCONT)  # it could not end itself
        LASTING.remove(child)


@pytest.fixture
def start_settler(
    web: Caller, shop_environment: dict[str, str], tmp_path: Path
) -> Iterator[Callable[[], ChildProcess]]:
    """Return a function that starts a settler alongside the web process; it ends with the test."""
    with ExitStack() as running:
        yield lambda: running.enter_context(settler_process(shop_environment, folder=tmp_path))


@pytest.fixture
def settler(start_settler: Callable[[], ChildProcess]) -> ChildProcess:
    """Run a settler from the beginning of the test."""
    return start_settler()


@pytest.fixture
def shown_sale(web: Caller, shop_database: None, new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    """Return a function that makes a sale of its own SKU and waits until the web process shows it."""

    from tests.support.shown_sales import shown_sales  # here: models cannot be read before Django is set up

    return shown_sales(web, new_sku)


@pytest.fixture
def card(shop_database: None, new_sku: Callable[[], str]) -> SaleCard:
    """A sale of two units; a module that needs another one has a fixture of its own."""
    from tests.support.shopkeeping import make_sale  # here: models cannot be read before Django is set up

    return make_sale(new_sku(), units=2)
