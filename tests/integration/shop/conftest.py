"""Fixtures of the shop's tests on real servers: the read of the catalogue gets long here, and Redis in the processes of
one test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def process_environment(process_environment: dict[str, str]) -> dict[str, str]:
    """Return the environment for a process of the shop of one test."""
    # No test here freezes a store: one that does not answer waits for its turn on a busy machine.
    return {**process_environment, "FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}


@pytest.fixture(autouse=True)
def patient_catalogue() -> Iterator[None]:
    """Give the database as long in this process; a test that sets such a bound itself has its own way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shop.gate.sales.cache.LOAD_SECONDS", 60.0)
        yield
