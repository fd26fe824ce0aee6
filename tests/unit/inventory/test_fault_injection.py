"""A fault is met at its name and its pass only, and a misspelt one never starts. Needs no server."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from inventory import fault_injection
from inventory.fault_injection import FAULT_POINTS, Fault, FaultRaised, fault_point, read_fault


def test_nothing_is_asked_for_by_default() -> None:
    assert read_fault("") is None
    for name in FAULT_POINTS:
        fault_point(name)


@pytest.mark.parametrize("name", FAULT_POINTS)
def test_every_name_is_read_with_its_action_and_its_pass(name: str) -> None:
    assert read_fault(f"{name}:kill") == Fault(name, "kill", 1)
    assert read_fault(f"{name}:stop:3") == Fault(name, "stop", 3)


@pytest.mark.parametrize(
    "text", ["no_such:kill", "after_take", "after_take:", "after_take:burn", "after_take:kill:0", "after_take:kill:x"]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="FAIRDROP_FAULT"):
        read_fault(text)


def test_it_strikes_once_at_its_pass(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fault_injection, "_fault", Fault("after_take", "raise", 2))
    fault_point("before_take")
    fault_point("after_take")
    assert capfd.readouterr().err == ""
    with pytest.raises(FaultRaised):
        fault_point("after_take")
    assert "fault point after_take reached: raise" in capfd.readouterr().err
    fault_point("after_take")
