"""What is published of a sale whose line was away at first, or is damaged. Real stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test.utils import override_settings

from inventory.exceptions import RedisUnavailable
from shop.models import Sale
from shop.sales import priming
from shop.sales.catalogue import SaleCard, find_sale
from tests.support import road
from tests.support.sale_logs import checked, told
from tests.support.shopkeeping import make_sale
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
JUMP = 1_000_000


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of two units, with room for some more in line."""
    return make_sale(new_sku(), units=2)


def ordinal_base(card: SaleCard) -> int | None:
    return Sale.objects.get(pk=card.sale_id).ordinal_base


def test_a_sale_made_while_redis_is_away_has_lost_no_places(new_sku: Callable[[], str]) -> None:
    """The control: one that was primed, and whose Redis was emptied, goes on above a jump."""
    sku = new_sku()
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"), pytest.raises(RedisUnavailable):
        make_sale(sku, units=2)
    card = find_sale(f"{sku}-drop")
    assert ordinal_base(card) is None
    priming.prime_sale(card.slug)
    assert ordinal_base(card) == 0
    (answer,) = road.admit(card, road.ask(card, "ann"))
    assert answer.ordinal == 1
    checked(card)
    assert told(card) == [("opened",), ("admitted",)]
    road.forget(card)
    priming.prime_sale(card.slug)
    assert ordinal_base(card) == JUMP
    road.queue(card, "bob")
    checked(card)
    assert told(card)[2:] == [("recovered", f"[[2, {JUMP}]]"), ("admitted",)]
