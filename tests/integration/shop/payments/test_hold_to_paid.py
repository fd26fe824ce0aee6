"""How long buyers took to pay is counted once for each hold that was paid, by its age, however often that is heard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from math import inf

import pytest
from django.db.models.functions import Now

from inventory.telemetry.measures import HOLD
from inventory.telemetry.page import render
from shop.models import Order
from shop.payments import captures, notices
from shop.payments.providers import Notice
from shop.payments.rows import NoticeResult, Target
from shop.sales.catalogue import SaleCard
from tests.support.metrics import samples_of
from tests.support.paying import again, begin, happen, hear, hold

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
NAME = "fairdrop_hold_to_paid_seconds"


def rise(act: Callable[[], object]) -> dict[str, float]:
    """Return by how much each sample rose in a call, without those that did not."""
    before = samples_of(render("tested").decode())
    act()
    after = samples_of(render("tested").decode())
    return {
        name.removeprefix(NAME): value - before[name]
        for name, value in after.items()
        if name.startswith(NAME) and value != before[name]
    }


def captured(card: SaleCard, *, age_seconds: float) -> Notice:
    """Return the notice that pays a hold of that age."""
    (name,) = hold(card, buyers=1)
    notice = happen(begin(name), "captured")
    Order.objects.filter(request_id=name).update(changed_at=Now() - timedelta(seconds=age_seconds))
    return notice


# Far enough below a bound that the test's own seconds change nothing.
@pytest.mark.parametrize(("age_seconds", "bound"), [(61, 120.0), (301, 600.0), (7_200, inf)])
def test_a_payment_is_counted_once_in_the_buckets_of_its_age(card: SaleCard, age_seconds: int, bound: float) -> None:
    notice = captured(card, age_seconds=age_seconds)
    found = rise(lambda: hear(notice))
    took_seconds = found.pop("_sum{}")
    assert age_seconds <= took_seconds < bound
    buckets = [f"_bucket{{{each}}}" for each in HOLD if each >= bound]
    assert found == dict.fromkeys([*buckets, "_bucket{+Inf}", "_count{}"], 1)


def heard_again(notice: Notice) -> list[str]:
    """Hear of a payment once more: the same notice twice, and another one of the same charge."""
    return [hear(notice), hear(notice), hear(again(notice))]


def test_what_is_heard_again_is_not_counted_again(card: SaleCard) -> None:
    notice = captured(card, age_seconds=16)
    assert rise(lambda: hear(notice))["_count{}"] == 1
    assert rise(lambda: heard_again(notice)) == {}


def test_what_pays_nothing_is_not_counted(card: SaleCard) -> None:
    notice = captured(card, age_seconds=16)
    less = again(notice, amount=notice.amount - Decimal("0.01"))
    assert rise(lambda: hear(less)) == {}


def test_control_who_counts_notices_counts_those_again(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    take = notices._take

    def counting(notice: Notice, target: Target, *, provider_name: str) -> NoticeResult:
        captures.HOLD_TO_PAID_SECONDS.observe(target.rested_seconds)
        return take(notice, target, provider_name=provider_name)

    notice = captured(card, age_seconds=16)
    hear(notice)
    monkeypatch.setattr(notices, "_take", counting)
    assert rise(lambda: heard_again(notice))["_count{}"] == 3
