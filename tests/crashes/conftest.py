"""Fixtures of the crash suite: a road with a proxy on it. Called by pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crashes.lossy_road import Road


@pytest.fixture
def road(shop_database: None, new_sku: Callable[[], str]) -> Iterator[Road]:
    """Make a sale, and a Redis client whose replies can be lost."""
    from tests.crashes.lossy_road import lossy_road  # here: models cannot be read before Django is set up

    with lossy_road(new_sku()) as road:
        yield road
