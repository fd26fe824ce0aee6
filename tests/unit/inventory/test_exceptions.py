"""The tree drawn in the docstring is the tree of classes, and each error knows its line of the HTTP contract.
Needs no server.
"""

from __future__ import annotations

import re

import pytest

from inventory import exceptions
from inventory.exceptions import FairdropError

# What clients of the API rely on, as docs/api.md lists it.
CONTRACT = {
    "invalid_request": 400,
    "unauthenticated": 401,
    "forbidden_origin": 403,
    "pass_required": 403,
    "code_required": 403,
    "email_required": 403,
    "network_revoked": 403,
    "sale_not_found": 404,
    "request_not_found": 404,
    "sold_out": 409,
    "line_full": 409,
    "limit_reached": 409,
    "terms_changed": 409,
    "not_payable": 409,
    "sale_closed": 410,
    "too_large": 413,
    "idempotency_mismatch": 422,
    "sale_not_open": 425,
    "rate_limited": 429,
    "unavailable": 503,
}
# HTTP's own answer to a wrong method; the contract gives it no code of its own.
WRONG_METHOD = ("invalid_request", 405)


def family(parent: type[FairdropError]) -> list[type[FairdropError]]:
    """Return `parent` and every error of the tree below it."""
    return [parent, *(below for child in parent.__subclasses__() if in_tree(child) for below in family(child))]


def in_tree(error: type) -> bool:
    return error.__module__ == exceptions.__name__


CLASSES = family(FairdropError)


def drawn_parents() -> dict[str, str]:
    """Return child → parent as the module's docstring draws them."""
    parents, path = {}, ["FairdropError"]
    for indent, name in re.findall(r"^((?:│   |    )*)[├└]── (\w+)", exceptions.__doc__ or "", flags=re.MULTILINE):
        depth = len(indent) // 4 + 1
        path[depth:] = [name]
        parents[name] = path[depth - 1]
    return parents


def test_the_drawing_is_the_tree() -> None:
    assert drawn_parents() == {each.__name__: each.__base__.__name__ for each in CLASSES[1:]}


def test_the_drawing_names_code_and_status_of_each_branch() -> None:
    drawn = re.findall(r"── (\w+) +(\d{3}) (\w+)$", exceptions.__doc__ or "", flags=re.MULTILINE)
    branches = [each for each in CLASSES if each.__base__ is FairdropError]
    assert drawn == [(each.__name__, str(each.status), each.code) for each in branches]


def test_every_line_of_the_contract_has_its_error() -> None:
    branches = [each for each in CLASSES if each.__base__ is FairdropError]
    assert {(each.code, each.status) for each in branches} == set(CONTRACT.items()) | {WRONG_METHOD}


def test_an_error_below_another_keeps_its_code() -> None:
    below = [each for each in CLASSES[1:] if each.__base__ is not FairdropError]
    assert [each.__name__ for each in below if each.code != each.__base__.code] == []


@pytest.mark.parametrize("error", CLASSES, ids=lambda each: each.__name__)
def test_an_error_without_words_speaks_its_docstring(error: type[FairdropError]) -> None:
    assert error().detail == (error.__doc__ or "").strip() != ""
    assert str(error()) == error().detail


@pytest.mark.parametrize("error", CLASSES, ids=lambda each: each.__name__)
def test_an_error_keeps_its_own_words_and_extras(error: type[FairdropError]) -> None:
    made = error("in other words", opens_at="soon")
    assert (made.detail, made.extra, str(made)) == ("in other words", {"opens_at": "soon"}, "in other words")


def test_who_finds_the_shop_unavailable_is_told_when_to_come_back() -> None:
    assert [each.__name__ for each in CLASSES if each.status == 503 and not each.retry_after_seconds] == []
