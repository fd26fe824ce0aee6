"""Proves that two holders of one lock at once, each at a primary of its own, cannot sell a unit twice or out of order.
The stock row's fence refuses anyone who came first to the lock and last to the row.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inventory.exceptions import FenceRefused
from shop.models import Order
from tests.support.crashes.two_primaries import split_brain
from tests.support.shopkeeping import assert_books_balance

OLD, NEW = ("anna", "bert", "carl"), ("dora", "emil", "fred")


def test_the_old_holder_is_refused_once_the_new_one_has_settled(
    shop_database: None, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    with split_brain(new_sku(), units=4, folder=tmp_path) as split:
        (old, old_batch), (new, new_batch) = split.both_hold(at_old=OLD, at_new=NEW)
        assert old.fence < new.fence
        split.settle_at(split.new, new, new_batch)
        with pytest.raises(FenceRefused):
            split.settle_at(split.old, old, old_batch)
        counts = assert_books_balance(split.card)
        assert (counts["orders_held"], counts["available"]) == (3, 1)
        assert set(Order.objects.filter(sale_id=split.card.sale_id).values_list("buyer", flat=True)) == set(NEW)
        old.release()
        new.release()


def test_the_old_holder_that_settles_first_is_not_sold_twice_by_the_new_one(
    shop_database: None, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """Both primaries have everybody in line: the new holder finds the old one's outcomes and repeats none."""
    with split_brain(new_sku(), units=6, folder=tmp_path) as split:
        split.ask_at(split.new, *OLD)
        (old, old_batch), (new, new_batch) = split.both_hold(at_old=OLD, at_new=NEW)
        assert len(new_batch.requests) == len(OLD) + len(NEW)
        split.settle_at(split.old, old, old_batch)
        split.settle_at(split.new, new, new_batch)
        counts = assert_books_balance(split.card)
        assert (counts["orders_held"], counts["waiting"]) == (6, 0)
        held = Order.objects.filter(sale_id=split.card.sale_id, state="held").values_list("buyer", flat=True)
        assert set(held) == {*OLD, *NEW}
        old.release()
        new.release()
