"""What its buyer reads of a hold that somebody else ended: never thanks for what they did not do, in both languages."""

from __future__ import annotations

import pytest

from inventory.states import Reason, State
from shop.models import Order
from shop.orders import holds
from shop.sales.catalogue import SaleCard
from shop.staff.lists.order_acts import do_act
from tests.support import road
from tests.support.pages import known_client, text_of

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
# The title and the step of the timeline; what is said to a buyer who did it.
ENDED = {
    "en": ("This hold was ended", "The hold was ended", "Ask the shop for help.", "Nothing was charged."),
    "zh-hans": ("这份预留已被结束", "预留已被结束", "请联系商店客服。", "没有扣款。"),
}
GIVEN_UP = {"en": ("You gave it back", "Given back", "Thank you."), "zh-hans": ("您已放弃", "已放弃", "谢谢。")}


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("by", ["staff", "a restore", "its buyer"])
def test_only_a_buyer_who_gave_a_hold_back_is_thanked(card: SaleCard, language: str, by: str) -> None:
    client, buyer = known_client()
    client.cookies["language"] = language
    (name,) = road.queue(card, buyer)
    road.settle_line(card)
    order = Order.objects.get(request_id=name)
    if by == "staff":
        do_act(order, "cancel", actor="anna", reason="fraud")
    elif by == "a restore":
        Order.objects.filter(pk=order.pk).update(state=State.CANCELLED, reason=Reason.BROUGHT_BACK)
    else:
        holds.cancel(name, buyer=buyer)
    text = text_of(client.get(f"/requests/{name}/"))
    said, not_said = (GIVEN_UP, ENDED) if by == "its buyer" else (ENDED, GIVEN_UP)
    assert [words for words in said[language] if words not in text] == []
    assert [words for words in not_said[language][:3] if words in text] == []
