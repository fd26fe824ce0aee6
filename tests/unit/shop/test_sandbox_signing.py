"""A notice is believed only with a fresh signature over exactly these bytes. Needs no server."""

from __future__ import annotations

import json
import time
from decimal import Decimal

import pytest

from inventory.exceptions import InvalidRequest
from shop.payments.providers import Notice
from shop.sandbox.signing import HEADER, TOLERANCE_SECONDS, read_notice, sign, write_notice

SECRET = "a secret of these tests"
NOTICE = Notice("evt_1", "captured", "a" * 32, Decimal("15.00"), "EUR")
BODY = write_notice(NOTICE)


def read(header: str | None, body: bytes = BODY, *, secret: str = SECRET) -> Notice:
    return read_notice({} if header is None else {HEADER: header}, body, secret=secret)


def test_a_fresh_signature_is_believed() -> None:
    """The control of every refusal below."""
    assert read(sign(BODY, secret=SECRET)) == NOTICE


@pytest.mark.parametrize("age", [TOLERANCE_SECONDS - 30, -(TOLERANCE_SECONDS - 30)])
def test_a_clock_may_be_a_little_wrong(age: int) -> None:
    assert read(sign(BODY, secret=SECRET, moment=int(time.time()) - age)) == NOTICE


@pytest.mark.parametrize("age", [TOLERANCE_SECONDS + 30, -(TOLERANCE_SECONDS + 30)])
def test_an_old_or_future_one_is_refused(age: int) -> None:
    with pytest.raises(InvalidRequest, match="too long ago"):
        read(sign(BODY, secret=SECRET, moment=int(time.time()) - age))


def test_a_later_stamp_on_an_old_signature_is_refused() -> None:
    _, _, mac = sign(BODY, secret=SECRET, moment=int(time.time()) - 3600).partition(",")
    with pytest.raises(InvalidRequest, match="not that of this body"):
        read(f"t={int(time.time())},{mac}")


@pytest.mark.parametrize(
    "header",
    [None, "", "v1=" + "0" * 64, "t=,v1=" + "0" * 64, "t=1", "t=1,v1=" + "0" * 63, "t=١,v1=" + "0" * 64, "t=1,v0=00"],
)
def test_a_header_of_another_form_is_refused(header: str | None) -> None:
    with pytest.raises(InvalidRequest, match="missing"):
        read(header)


def test_another_body_or_another_secret_is_refused() -> None:
    header = sign(BODY, secret=SECRET)
    with pytest.raises(InvalidRequest, match="not that of this body"):
        read(header, BODY.replace(b"15.00", b"15.01"))
    with pytest.raises(InvalidRequest, match="not that of this body"):
        read(header, secret="another")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        json.dumps({"id": "e", "kind": "stolen", "reference": "r", "amount": "1", "currency": "EUR"}).encode(),
        json.dumps({"id": "e", "kind": "captured", "reference": "r", "amount": "much", "currency": "EUR"}).encode(),
        json.dumps({"id": "e", "kind": "captured", "reference": "r", "amount": None, "currency": "EUR"}).encode(),
    ],
)
def test_what_is_signed_and_no_notice_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not a valid notice"):
        read(sign(body, secret=SECRET), body)
