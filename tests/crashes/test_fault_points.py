"""Proves that a settler killed or frozen at any named place costs nobody a place, a unit or a second answer.
A healthy settler finishes while the frozen one still sleeps; then the sleeper wakes up and may change nothing.
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connections

from inventory.faults import FAULT_POINTS
from tests.crashes.extra_shop import own_valkey
from tests.crashes.fault_shop import (
    LOCK_TTL_MS,
    FaultShop,
    assert_decided_once_and_in_order,
    full_line,
    latecomers,
    wait_until_decided,
)
from tests.servers import ROOT
from tests.shop_processes import settler_process
from tests.shopkeeping import shop_of

# The pass at which it strikes: in the middle of the line where a place is passed once a batch, else at the first.
ONCE_A_TURN = ("before_take", "before_release")
EVERY_POINT = pytest.mark.parametrize("name", FAULT_POINTS)


@pytest.fixture(scope="module")
def fault_shop(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultShop]:
    """Run a Valkey of this module's own, so that no other test's line is worked, and a healthy settler on it."""
    folder = tmp_path_factory.mktemp("faults")
    with own_valkey(folder) as valkey:
        target = connections["default"].settings_dict
        address = os.environ["DATABASE_URL"].rpartition("/")[0]
        environment = {
            **os.environ,
            "DATABASE_URL": f"{address}/{target['NAME']}",
            "REDIS_URL": valkey.url,
            "FAIRDROP_LOCK_TTL_MS": str(LOCK_TTL_MS),
            "FAIRDROP_SETTLE_BATCH": "50",
        }
        with settler_process(environment, folder=folder, name="healthy") as healthy:
            shop = FaultShop(environment, healthy)
            shop.freeze_healthy()
            yield shop
            shop.wake_healthy()


@pytest.fixture
def shop(fault_shop: FaultShop, shop_database: None) -> Iterator[FaultShop]:
    """Work on that Valkey; afterwards the healthy settler sleeps again."""
    with shop_of(fault_shop.environment):
        yield fault_shop
    fault_shop.freeze_healthy()


def strike(name: str, action: str) -> str:
    """Return the fault to ask for."""
    return f"{name}:{action}:{1 if name in ONCE_A_TURN else 2}"


@EVERY_POINT
def test_a_settler_killed_there_costs_nobody_anything(
    name: str, shop: FaultShop, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    card = full_line(new_sku())
    with shop.victim(strike(name, "kill"), folder=tmp_path) as victim:
        victim.wait_until_it_reaches(name)
        assert victim.process.wait(timeout_seconds=5)
        assert victim.process.exit_code == -signal.SIGKILL
        latecomers(card)
        shop.wake_healthy()
        wait_until_decided(card)
    assert_decided_once_and_in_order(card)


@EVERY_POINT
def test_a_settler_frozen_there_beyond_its_lock_changes_nothing_when_it_wakes(
    name: str, shop: FaultShop, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    card = full_line(new_sku())
    with shop.victim(strike(name, "stop"), folder=tmp_path) as victim:
        victim.wait_until_it_reaches(name)
        latecomers(card)
        shop.wake_healthy()
        # The healthy one is done although the other still sleeps: nothing that a sleeper keeps is kept for ever.
        wait_until_decided(card)
        os.kill(victim.process.pid, signal.SIGCONT)
        # It ends in order only after it has gone on from where it slept.
        victim.process.ask_to_stop()
        assert victim.process.wait(timeout_seconds=10)
        assert victim.process.exit_code == 0
    assert_decided_once_and_in_order(card)


def test_every_place_in_the_code_is_registered_and_every_registered_place_is_in_the_code() -> None:
    calls = [
        ast.literal_eval(node.args[0])
        for path in sorted((ROOT / "workers").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "fault_point"
    ]
    assert sorted(calls) == sorted(FAULT_POINTS)


def test_without_a_fault_the_victim_is_an_ordinary_settler(
    shop: FaultShop, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """The control: with the variable empty nothing is met, and one settler decides the whole line."""
    card = full_line(new_sku())
    latecomers(card)
    with shop.victim("", folder=tmp_path) as victim:
        wait_until_decided(card)
        assert "fault point" not in victim.log.read_text()
    assert_decided_once_and_in_order(card)
