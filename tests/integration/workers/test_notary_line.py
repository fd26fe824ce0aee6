"""What is published of a sale whose line was away at first, or is damaged. Real stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test.utils import override_settings
from structlog.testing import capture_logs

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line import admitted
from inventory.line.admission import Code
from inventory.line.admitted import Since, all_admitted
from inventory.redis import keys
from shop.models import Sale
from shop.sales import priming
from shop.sales.catalogue import SaleCard, find_sale
from tests.support import road
from tests.support.sale_logs import checked, publish, told
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


@pytest.mark.parametrize("damaged", [0, 1, 3])
def test_a_record_that_cannot_be_read_hides_nobody_else(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, damaged: int
) -> None:
    """The controls: nobody is missing without it, and nothing is said of a line when a page of it is all damaged."""
    monkeypatch.setattr(admitted, "MAX_A_CALL", 3)
    card = make_sale(new_sku(), units=1, line_capacity=7)
    names = road.queue(card, *(f"buyer-{number}" for number in range(8)))
    last = road.ask(card, "last", standby=True)
    assert road.admit(card, last)[0].code == Code.ON_STANDBY
    road.run(*(("HSET", keys.records(card.sku), name, "x") for name in names[:damaged]))
    whole = all_admitted(redis.connect(), Since(card.sku, card.sale_id, 0))
    if damaged == 3:
        assert whole is None
    else:
        assert whole
        assert {name for name, _ in whole.requests} == {*names[damaged:], last.request_id}


def test_damaged_ordinals_of_one_sale_stop_no_other_log(card: SaleCard, new_sku: Callable[[], str]) -> None:
    """The control: once the sale is primed again its own log goes on as well, and nobody of it is lost."""
    other = make_sale(new_sku(), units=2)
    publish()
    road.queue(card, "ann")
    road.queue(other, "bob")
    road.run(("HSET", keys.sales(card.sku), f"{card.sale_id}:ordinals", "x"))
    assert all_admitted(redis.connect(), Since(card.sku, card.sale_id, 0)) is None
    with capture_logs() as entries:
        publish()
    assert (told(other), told(card)) == ([("opened",), ("admitted",)], [("opened",)])
    assert {each["sku"] for each in entries if each.get("action") == "log_failed"} == {card.sku}
    assert road.admit(card, road.ask(card, "eve"))[0].code == Code.NOT_PRIMED
    priming.prime_sale(card.slug)
    checked(card)
    assert told(card)[1:] == [("recovered", f"[[2, {JUMP}]]"), ("admitted",)]
