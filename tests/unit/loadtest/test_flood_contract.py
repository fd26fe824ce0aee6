"""What an answer to the flood proves: a form's redirect is a yes, everywhere else it leaves the matter open."""

from __future__ import annotations

import pytest

from loadtest.record.history import FAIL, OK, UNKNOWN, Operation
from loadtest.users.calls import NAMES
from loadtest.users.contract import FORESEEN, is_foreseen, outcome_of


@pytest.mark.parametrize(
    ("kind", "status", "outcome"),
    [
        ("choose", 303, OK),
        ("pay", 303, UNKNOWN),
        ("pay", 200, OK),
        ("pay", 409, FAIL),
        ("cancel", 500, UNKNOWN),
        ("cancel", 0, UNKNOWN),
    ],
)
def test_a_yes_a_no_or_neither(kind: str, status: int, outcome: str) -> None:
    assert outcome_of(status, kind=kind) == outcome


@pytest.mark.parametrize(
    ("kind", "status", "code", "foreseen"),
    [
        ("pay", 409, "not_payable", True),
        ("pay", 409, "sold_out", False),
        ("pay", 503, "unavailable", True),
        ("begin", 409, "not_payable", True),
        ("cancel", 404, "request_not_found", False),
        ("choose", 200, "", False),
        ("page", 404, "", False),
    ],
)
def test_what_the_contract_foresees(kind: str, status: int, code: str, foreseen: bool) -> None:
    assert is_foreseen(Operation(kind=kind, status=status, code=code)) is foreseen


def test_every_kind_of_call_has_a_name_and_foreseen_answers() -> None:
    assert set(NAMES) == set(FORESEEN)
