"""An authenticator for the tests: codes of a member of staff's device at a moment of the test's own clock.
Starts nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.contrib.auth.models import User
from django_otp.oath import TOTP
from django_otp.plugins.otp_totp.models import TOTPDevice

STEP_SECONDS = 30


class Clock:
    """The clock of the codes. It stands in the middle of a step until the test moves it, so no code ends too early."""

    def __init__(self, monkeypatch: Any) -> None:
        self.now = 1_800_000_015.0
        monkeypatch.setattr("django_otp.plugins.otp_totp.models.time", SimpleNamespace(time=lambda: self.now))

    def next_step(self) -> None:
        self.now += STEP_SECONDS


def code_of(device: TOTPDevice, *, at: float) -> str:
    """Return what an authenticator with the key of `device` shows at `at`, in Unix seconds."""
    totp = TOTP(device.bin_key, device.step, device.t0, device.digits)
    totp.time = at
    return f"{totp.token():06d}"


def authenticator_of(user: User, *, confirmed: bool = True) -> TOTPDevice:
    """Return the newest authenticator of `user`."""
    return TOTPDevice.objects.filter(user=user, confirmed=confirmed).latest("id")
