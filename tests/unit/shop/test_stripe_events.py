"""An event of Stripe's is believed only with a fresh signature over exactly these bytes. Needs no server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.test.utils import override_settings
from structlog.testing import capture_logs

from inventory.exceptions import InvalidRequest
from shop.payments.providers import Notice
from shop.stripe.events import TOLERANCE_SECONDS, read_event
from tests.support.servers.stripe_server import WEBHOOK_SECRET, signed

REFERENCE = "a" * 32
SESSION = {
    "id": "cs_test_1",
    "status": "complete",
    "payment_status": "paid",
    "amount_total": 1500,
    "currency": "eur",
    "metadata": {"fairdrop_payment": REFERENCE},
}


@pytest.fixture(autouse=True)
def _secret() -> Iterator[None]:
    with override_settings(STRIPE_WEBHOOK_SECRET=WEBHOOK_SECRET):
        yield


def event(kind: str = "checkout.session.completed", what: Any = SESSION) -> dict[str, Any]:
    return {"id": "evt_1", "object": "event", "type": kind, "data": {"object": what}}


_, BODY = signed(event())


def test_a_fresh_signature_is_believed() -> None:
    """The control of every refusal below."""
    assert read_event(*signed(event())) == Notice("evt_1", "captured", REFERENCE, Decimal("15.00"), "EUR")


CHARGE = {
    "id": "ch_1",
    "captured": True,
    "amount_captured": 1500,
    "currency": "eur",
    "metadata": {"fairdrop_payment": REFERENCE},
    "payment_method_details": {"card": {"fingerprint": "Xt5EWLLDS7FJjR1c"}},
}


@pytest.mark.parametrize(
    ("details", "card"),
    [(CHARGE["payment_method_details"], "Xt5EWLLDS7FJjR1c"), ({"card": {}}, ""), ({"type": "link"}, ""), (None, "")],
)
def test_a_charge_that_was_collected_names_its_card(details: Any, card: str) -> None:
    found = read_event(*signed(event("charge.succeeded", {**CHARGE, "payment_method_details": details})))
    assert found == Notice("evt_1", "captured", REFERENCE, Decimal("15.00"), "EUR", card)


def test_a_charge_that_is_only_authorised_says_nothing() -> None:
    assert read_event(*signed(event("charge.succeeded", {**CHARGE, "captured": False}))) is None


def test_a_clock_may_be_a_little_wrong() -> None:
    assert read_event(*signed(event(), moment=int(time.time()) - TOLERANCE_SECONDS + 30))


def test_an_old_one_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="too old"):
        read_event(*signed(event(), moment=int(time.time()) - TOLERANCE_SECONDS - 30))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=1",
        "v1=00",
        "t=x,v1=00",
        "t=1,v0=00",
        "t=1,v1=é",
        "t=1,v1=" + "0" * 64,
        ",",
        "=",
        "t=9" + "9" * 30 + ",v1=0",
    ],
)
def test_a_signature_that_is_none_is_refused(header: str) -> None:
    with pytest.raises(InvalidRequest, match="missing, too old, or not that of this body"):
        read_event({"Stripe-Signature": header}, BODY)


def test_no_signature_another_body_or_another_secret_is_refused() -> None:
    other, _ = signed(event(), secret="whsec_another")
    mine, _ = signed(event())
    for headers, body in (({}, BODY), (mine, BODY.replace(b"1500", b"1501")), (mine, b"\xff"), (other, BODY)):
        with pytest.raises(InvalidRequest, match="not that of this body"):
            read_event(headers, body)


def test_one_of_two_signatures_is_enough_while_a_secret_is_rolled() -> None:
    old, _ = signed(event(), secret="whsec_another")
    moment, _, fresh = signed(event())[0]["Stripe-Signature"].partition(",")
    _, _, stale = old["Stripe-Signature"].partition(",")
    assert read_event({"Stripe-Signature": f"{moment},{stale},{fresh}"}, BODY)


@pytest.mark.parametrize(
    "broken",
    [
        [],
        None,
        {},
        "text",
        event(what=None),
        event(what=[]),
        event(what={}),
        event(what={**SESSION, "amount_total": "1500"}),
        event(what={**SESSION, "amount_total": None}),
        event(what={**SESSION, "amount_total": -1}),
        event(what={**SESSION, "currency": None}),
        event(what={**SESSION, "currency": "euro"}),
        event(what={**SESSION, "metadata": {"fairdrop_payment": ""}}),
        event(what={**SESSION, "metadata": {"fairdrop_payment": 7}}),
        event(what={**SESSION, "metadata": "text"}),
        event("charge.refunded", SESSION),
        event("charge.succeeded", SESSION),
        event("charge.succeeded", {**CHARGE, "payment_method_details": {"card": {"fingerprint": "x" * 65}}}),
        {**event(), "id": "x" * 65},
        {**event(), "id": None},
    ],
    ids=lambda broken: json.dumps(broken)[:60],
)
def test_what_is_signed_and_no_event_is_refused(broken: Any) -> None:
    with pytest.raises(InvalidRequest):
        read_event(*signed(broken))


@pytest.mark.parametrize(
    "silent",
    [
        event("checkout.session.expired", {**SESSION, "status": "expired", "payment_status": "unpaid"}),
        event(what={**SESSION, "payment_status": "unpaid"}),
        event(what={**SESSION, "status": "open"}),
        event(what={**SESSION, "metadata": None}),
        event(what={**SESSION, "metadata": {}}),
        event("customer.created", {}),
    ],
    ids=["expired", "unpaid", "open", "no metadata", "another's", "another kind"],
)
def test_what_says_nothing_of_money_of_ours_is_nothing(silent: Any) -> None:
    assert read_event(*signed(silent)) is None


def test_a_price_of_nothing_is_paid() -> None:
    free = {**SESSION, "payment_status": "no_payment_required", "amount_total": 0}
    assert read_event(*signed(event(what=free))) == Notice("evt_1", "captured", REFERENCE, Decimal(0), "EUR")


def test_a_refund_that_failed_later_is_for_a_person() -> None:
    with capture_logs() as logs:
        assert read_event(*signed(event("refund.failed", {"id": "re_1", "amount": 1500, "currency": "eur"}))) is None
    ours = [line for line in logs if "refund" in line]
    assert [(line["log_level"], line["action"], line["refund"]) for line in ours] == [
        ("error", "refund_failed", "re_1")
    ]
