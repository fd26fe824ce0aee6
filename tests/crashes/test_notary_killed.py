"""Proves that a notary that is killed publishes nothing twice and loses nothing. Real processes and stores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shop.salelog.models import SaleLog
from tests.support import road
from tests.support.sale_logs import checked, publish, told
from tests.support.servers.shop_processes import running_process
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


@pytest.mark.parametrize("place", ["before_checkpoint", "after_checkpoint"])
def test_a_killed_notary_publishes_nothing_twice_and_loses_nothing(
    new_sku: Callable[[], str], process_environment: dict[str, str], tmp_path: Path, place: str
) -> None:
    publish()  # what other tests have left
    card = make_sale(new_sku(), units=2)
    road.queue(card, "ann", "bob")
    command = [sys.executable, "manage.py", "run_worker", "notary"]
    fault = {**process_environment, "FAIRDROP_FAULT": f"{place}:kill"}
    with running_process("killed", command, environment=fault, folder=tmp_path) as child:
        wait_until(lambda: child.exit_code is not None, what="the notary is killed")
    size = SaleLog.objects.filter(sale_id=card.sale_id).values_list("size", flat=True).first()
    assert size == (None if place == "before_checkpoint" else 1)  # its first step only opens a log
    road.settle_line(card)
    with running_process("next", command, environment=process_environment, folder=tmp_path):
        wait_until(lambda: SaleLog.objects.filter(sale_id=card.sale_id, size=5).exists(), what="all of it is published")
    checked(card)
    assert [kind for kind, *_ in told(card)] == ["opened", "admitted", "admitted", "decided", "decided"]
