"""Fixtures of the races. Never lengthens what a race is about: only how long an answer of Redis may take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings


@pytest.fixture(autouse=True)
def patient_redis() -> Iterator[None]:
    """Give no store up while the machine stands still: none of these tests freezes one."""
    with override_settings(REDIS_TIMEOUT_SECONDS=60):
        yield
