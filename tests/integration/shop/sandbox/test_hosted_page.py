"""What the sandbox's page says of a charge that cannot be paid any more."""

from __future__ import annotations

import pytest
from django.db.models import F
from django.test import Client

from shop.models import CHARGE_LIFE
from shop.payments.providers import Kind
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge
from tests.support.pages import text_of
from tests.support.paying import begin, happen, hold

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


@pytest.mark.parametrize(
    ("happened", "words"),
    [
        ([], "It is too late to pay this."),
        (["declined"], "It is too late to pay this."),
        (["captured"], "This is paid."),
        (["captured", "refunded"], "This was given back."),
    ],
)
def test_a_charge_that_is_over_says_what_became_of_it(card: SaleCard, happened: list[Kind], words: str) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    for kind in happened:
        happen(payment, kind)
    Charge.objects.filter(reference=payment.reference).update(created_at=F("created_at") - CHARGE_LIFE)
    text = text_of(Client().get(f"/sandbox/pay/{payment.reference}/"))
    said = ("It is too late to pay this.", "This is paid.", "This was given back.")
    assert [each for each in said if each in text] == [words]
    assert 'name="choice"' not in text
