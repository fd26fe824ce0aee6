"""After a failover of Redis the command that operators are told to run primes a sale for which nobody has asked.
Uses the real servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command

from inventory import redis
from inventory.redis import keys
from shop.models import Sale
from shop.sales import catalogue, priming
from tests.support import road
from tests.support.shopkeeping import audit_of, make_sale

pytestmark = pytest.mark.usefixtures("shop_database")

OPERATIONS = (Path(__file__).resolve().parents[4] / "docs" / "operations.md").read_text()
OLD_PRIMARY = "a" * 40


def test_the_command_for_after_a_failover_lets_no_ordinal_be_given_twice(new_sku: Callable[[], str]) -> None:
    """The control: a correction of the stock leaves the sale as one of the old primary."""
    card = make_sale(new_sku(), units=3)
    road.queue(card, "ann")
    field = f"{card.sale_id}:ordinals"

    def primed_by() -> tuple[int, str]:
        ((text,),) = road.run(("HMGET", keys.sales(card.sku), field))
        last, _, run_id = text.split("|")
        return int(last), run_id

    # The old primary gave more ordinals than this server was ever sent.
    road.run(("HSET", keys.sales(card.sku), field, f"1|0|{OLD_PRIMARY}"))
    call_command("sale", "adjust", card.slug, "--units", "-1", "--reason", "one is broken", "--actor", "olga")
    assert primed_by() == (1, OLD_PRIMARY)
    (words,) = re.findall(r"\*\*After a failover of Redis\*\*[^`]*`python manage\.py ([^`]+)`", OPERATIONS)
    told = {"SLUG": card.slug, "N": f"{card.per_buyer_limit}"}
    before = catalogue.find_sale(card.slug)
    call_command(*(told.get(word, word) for word in words.split()), "--actor", "olga")
    assert primed_by() == (priming.ORDINAL_JUMP, redis.connect().info("server")["run_id"])
    after = catalogue.find_sale(card.slug)
    assert (after.terms_version, after.price) == (before.terms_version, before.price)
    assert Sale.objects.get(pk=card.sale_id).ordinal_base == priming.ORDINAL_JUMP
    assert audit_of(card)["ok"]
