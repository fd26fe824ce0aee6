"""Fixtures of the crash suite: a database of its own, and a road with a proxy on it.

Many of these tests have a Redis of their own. A process of another suite would find their sales in its database and not
in its Redis, take that for a loss, and move the ordinals of the sale.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker

from tests.conftest import MADE_SKUS

READERS = 3_000
# How many slow senders there are; `make test-slow-senders` sends ten times as many.
CROWD = int(os.environ.get("SLOW_SENDERS", "2000"))
# Files that this process and the web process have open besides the connections of a crowd, with room to spare.
SPARE_FILES = 1_000

if TYPE_CHECKING:
    from tests.support.crashes.lossy_road import Road


@pytest.fixture(scope="session")
def lasting_environment(lasting_environment: dict[str, str]) -> dict[str, str]:
    """Return the environment for a process of the shop that lives longer than a test, on the crash tests' database."""
    address = urlsplit(lasting_environment["DATABASE_URL"])
    return {**lasting_environment, "DATABASE_URL": address._replace(path=f"{address.path}_crashes").geturl()}


@pytest.fixture
def shop_database(lasting_environment: dict[str, str], django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Open the crash tests' database."""
    with django_db_blocker.unblock():
        from tests.support.shopkeeping import put_away, shop_of  # here: models cannot be read before Django is set up

        with shop_of(lasting_environment):
            yield
            put_away(MADE_SKUS)
        connections.close_all()


@pytest.fixture
def road(shop_database: None, new_sku: Callable[[], str]) -> Iterator[Road]:
    """Make a sale, and a Redis client whose replies can be lost."""
    from tests.support.crashes.lossy_road import lossy_road  # here: models cannot be read before Django is set up

    with lossy_road(new_sku()) as road:
        yield road


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process and its children open a file for each member of a crowd, or what the hard limit allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(CROWD, READERS) + SPARE_FILES
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], needed), max(before[1], needed)))
    except (ValueError, OSError):  # beyond the hard limit only a privileged process can go
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
