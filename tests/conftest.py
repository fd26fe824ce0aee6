"""Fixtures that every suite shares, and the order of beginning: addresses, settings, then servers if a test needs them.
Never flushes a table: movements are append-only and refuse TRUNCATE.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from secrets import token_hex
from unittest.mock import patch
from urllib.parse import urlsplit, urlunsplit

import hypothesis
import pytest
from django.conf import settings
from django.db import connections
from django.test.utils import setup_databases, teardown_databases
from pytest_django.plugin import DjangoDbBlocker

from tests.support.servers.stores import OwnServers, needs_servers
from tests.support.waiting import lengthen_bounds
from workers.embedded import server
from workers.embedded.server import ServerFailed, ServerMissing

# Settings are read once: they must not have been read before the tests' own addresses are in the environment.
if settings.configured:
    raise pytest.UsageError("unset DJANGO_SETTINGS_MODULE: the tests set it themselves, after their servers' addresses")
# Each process of the tests draws its ports from a part of its own: what one has found free no other of them takes.
_JOBS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_JOB = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _JOBS
_PORTS_EACH = len(server.QUIET_PORTS) // _JOBS
server.QUIET_PORTS = server.QUIET_PORTS[_JOB * _PORTS_EACH :][:_PORTS_EACH]
SERVERS = OwnServers()
SERVERS.publish()
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
# Most tests that empty Redis settle at once; those of the pause set it.
os.environ.setdefault("FAIRDROP_RESTORE_GRACE_SECONDS", "0")
# A busy machine may keep a server from answering for a second; what a test freezes stays silent for longer than this.
os.environ.setdefault("FAIRDROP_REDIS_TIMEOUT_SECONDS", "3")
lengthen_bounds()  # settings are read now, so that pytest-django finds them configured
# No example is wrong because the machine was slow.
hypothesis.settings.register_profile(
    "patient", parent=hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

_NUMBERS = count(1)
MADE_SKUS: list[str] = []


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Let each process that runs tests in parallel make up addresses and servers of its own, as if it were alone."""
    SERVERS.withdraw()
    del os.environ["DJANGO_SETTINGS_MODULE"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the servers when at least one of the tests to be run needs them; a missing one ends the run as failed."""
    if session.config.option.collectonly or not any(needs_servers(item.path) for item in session.items):
        return
    try:
        SERVERS.start()
    except (ServerMissing, ServerFailed) as error:
        if hasattr(session.config, "workerinput"):
            raise  # the process that prints the results shows this, and drops the reason of an exit
        pytest.exit(str(error), returncode=1)


def pytest_unconfigure() -> None:
    """Leave nothing behind, also after Ctrl-C."""
    SERVERS.stop()


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Make the test database by the migrations, and its copy for the crash tests.

    On our own server they go with the server; elsewhere they are dropped.
    """
    from inventory.management.commands import migrate  # here: models cannot be read before Django is set up

    with django_db_blocker.unblock(), patch.multiple(migrate, STATEMENT_SECONDS=0, LOCK_SECONDS=60):
        made = setup_databases(verbosity=0, interactive=False, aliases={"default"})
        connections.close_all()
        name = connections["default"].settings_dict["NAME"]
        _run_at_maintenance_database(f'DROP DATABASE IF EXISTS "{name}_crashes"')
        _run_at_maintenance_database(f'CREATE DATABASE "{name}_crashes" TEMPLATE "{name}"')
    yield
    with django_db_blocker.unblock():
        connections.close_all()
        if not SERVERS.own_postgres:
            _run_at_maintenance_database(f'DROP DATABASE "{name}_crashes"')
            teardown_databases(made, verbosity=0)


def _run_at_maintenance_database(command: str) -> None:
    with connections["default"]._nodb_cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(command)


@pytest.fixture
def shop_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Open the real test database: commits are commits, rows stay, and every test makes its own SKU (`new_sku`)."""
    with django_db_blocker.unblock():
        yield
        from tests.support.shopkeeping import put_away  # here: models cannot be read before Django is set up

        put_away(MADE_SKUS)
        connections.close_all()


@pytest.fixture(scope="session")
def lasting_environment(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment for a process of the shop that lives longer than a test, on the test database."""
    name = connections["default"].settings_dict["NAME"]
    address = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}")
    # Every test calls from this machine; what limits calls by address is tested in processes of its own.
    rates = dict.fromkeys(("FAIRDROP_RATE_OF_BUYERS", "FAIRDROP_RATE_OF_ASKS", "FAIRDROP_RATE_OF_STREAMS"), "0")
    media = str(tmp_path_factory.mktemp("media"))
    return {**os.environ, **rates, "DATABASE_URL": urlunsplit(address), "FAIRDROP_MEDIA_ROOT": media}


@pytest.fixture
def process_environment(lasting_environment: dict[str, str], shop_database: None) -> dict[str, str]:
    """Return the environment for a process of the shop (settler, web) of one test, which reads the database too."""
    return dict(lasting_environment)


@pytest.fixture
def quiet_notices(shop_database: None) -> Iterator[None]:
    """No thread of this process sends a notice of the sandbox: the test carries them by hand."""
    from tests.support.paying import quiet_sandbox  # here: models cannot be read before Django is set up

    with quiet_sandbox():
        yield


@pytest.fixture
def new_sku() -> Callable[[], str]:
    """Return a function that gives a SKU no other test has."""

    def make() -> str:
        MADE_SKUS.append(f"sku-{next(_NUMBERS)}-{token_hex(4)}")
        return MADE_SKUS[-1]

    return make
