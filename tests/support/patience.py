"""Gives Redis time in the suites of integration, journeys and races. Never takes a busy machine for a silent Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings


@pytest.fixture(autouse=True)
def patient_redis() -> Iterator[None]:
    """Wait for Redis as long as a machine may stand still; what tests a silent server sets how long it waits."""
    with override_settings(REDIS_TIMEOUT_SECONDS=60):
        yield
