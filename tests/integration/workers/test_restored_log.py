"""A log of which more was published than a restored database has is published no further. Real stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from inventory import redis
from inventory.redis import keys
from shop.salelog.models import SaleLog, Tile
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.sale_logs import publish
from tests.support.shopkeeping import make_sale
from workers.notary import Notary

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


def restore_log(card: SaleCard, log: dict[str, Any], tiles: list[dict[str, Any]]) -> None:
    """Put the rows of a log back as a backup has them."""
    guards = (("salelog_tile", "tile_stays"), ("salelog_salelog", "log_grows"))
    with connection.cursor() as cursor:
        for table, guard in guards:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {guard}")
        Tile.objects.filter(sale_id=card.sale_id).delete()
        Tile.objects.bulk_create(Tile(**row) for row in tiles)
        SaleLog.objects.filter(sale_id=card.sale_id).update(**log)
        for table, guard in guards:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER {guard}")


@pytest.mark.parametrize("emptied", ["", "a notary starts", "another log grows"])
def test_a_database_that_was_restored_does_not_fork_its_log(new_sku: Callable[[], str], emptied: str) -> None:
    """Nor when Redis had been emptied before, and this log has not grown since."""
    card = make_sale(new_sku(), units=2)
    road.queue(card, "ann")
    publish()
    log = SaleLog.objects.filter(sale_id=card.sale_id).values().get()
    tiles = list(Tile.objects.filter(sale_id=card.sale_id).values())
    road.queue(card, "bob")
    notary = publish()
    if emptied:
        road.run(("DEL", keys.checkpoints()))
        road.queue(make_sale(new_sku(), units=1), "joe")
        publish(notary if emptied == "another log grows" else None)
    restore_log(card, log, tiles)
    road.queue(card, "eve")
    for one in (notary, Notary(redis.connect())):
        publish(one)
        assert SaleLog.objects.get(sale_id=card.sale_id).size == 2
    road.run(("HDEL", keys.checkpoints(), card.sale_id))
    publish()  # the control: with no checkpoint kept anywhere nothing is noticed
    assert SaleLog.objects.get(sale_id=card.sale_id).size == 4
