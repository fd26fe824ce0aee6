"""A reason that does not fit into the log of acts is refused before anything is done. Real stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.management import CommandError, call_command

from shop.models import Order, StaffAct
from shop.orders.numbers import order_number
from tests.support import road
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


@pytest.mark.parametrize(("length", "told"), [(201, "at most 200 characters"), (200, "Nothing was changed")])
def test_forget_buyer_takes_no_reason_that_the_log_of_acts_cannot_hold(
    new_sku: Callable[[], str], length: int, told: str
) -> None:
    """The control: the longest that fits is only held up by the missing --yes."""
    card = make_sale(new_sku(), units=1)
    (name,) = road.queue(card, "ada")
    road.settle_line(card)
    order, said = Order.objects.get(request_id=name), ["--yes"] if length > 200 else []
    with pytest.raises(CommandError, match=told):
        call_command("forget_buyer", order_number(order.pk), "--actor", card.sku, "--reason", "x" * length, *said)
    assert not StaffAct.objects.filter(act="forget_buyer", actor=card.sku).exists()
