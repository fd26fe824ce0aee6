"""How long an e-mail address is kept counts from when it was given, not from the first that its request had."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from shop.models import Contact
from shop.orders import deliveries, mails
from tests.support.road import queue
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.mark.parametrize(("last", "is_kept"), [("new@shop.example", True), ("old@shop.example", False)])
def test_an_address_that_was_changed_is_kept_for_as_long_as_any_other(
    new_sku: Callable[[], str], settings: Any, last: str, is_kept: bool
) -> None:
    """The control: one that was only sent again goes on its day."""
    settings.KEEP_ADDRESSES_DAYS = 30
    card = make_sale(new_sku(), units=1)
    (name,) = queue(card, f"ada-{card.sku}")
    mails.keep_address(name, "old@shop.example", language="en", root="http://testserver")
    Contact.objects.filter(request_id=name).update(created_at=F("created_at") - timedelta(days=89))
    mails.keep_address(name, last, language="en", root="http://testserver")
    deliveries.delete_old()
    assert mails.find_address(name) == (last if is_kept else "")
    mails.forget_address(name)
