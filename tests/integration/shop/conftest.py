"""Fixtures of the shop's tests on real servers: Redis, and the read of the catalogue, get long here, and Redis in the
processes of one test too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test.utils import override_settings

# No test here freezes a store: one that does not answer waits for its turn on a busy machine.
REDIS_SECONDS, LOAD_SECONDS = 30.0, 60.0


@pytest.fixture
def process_environment(process_environment: dict[str, str]) -> dict[str, str]:
    """Return the environment for a process of the shop of one test."""
    return {**process_environment, "FAIRDROP_REDIS_TIMEOUT_SECONDS": str(REDIS_SECONDS)}


@pytest.fixture(autouse=True)
def patient_with_stores() -> Iterator[None]:
    """Give the stores as long in this process; a test that sets such a bound itself has its own way."""
    with override_settings(REDIS_TIMEOUT_SECONDS=REDIS_SECONDS), pytest.MonkeyPatch.context() as patch:
        patch.setattr("shop.gate.sales.cache.LOAD_SECONDS", LOAD_SECONDS)
        yield
