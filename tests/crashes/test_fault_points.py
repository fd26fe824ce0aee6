"""Proves that a settler killed or frozen at any named place costs nobody a place, a unit or a second answer.
A healthy settler finishes while the frozen one still sleeps; then the sleeper wakes up and may change nothing.
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from inventory import redis
from inventory.fault_injection import FAULT_POINTS, SETTLER_POINTS
from inventory.redis import keys
from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import own_valkey
from tests.support.crashes.fault_shop import (
    BUYERS,
    LATE,
    LOCK_TTL_MS,
    FaultShop,
    assert_decided_once_and_in_order,
    decided,
    full_line,
    latecomers,
    wait_until_decided,
)
from tests.support.servers.shop_processes import settler_process
from tests.support.servers.stores import ROOT
from tests.support.shopkeeping import shop_of
from workers.embedded.child_process import ChildProcess
from workers.settler import MANY_SKUS

# The pass at which it strikes: in the middle of the line where a place is passed once a batch, else at the first.
ONCE_A_TURN = ("before_take", "before_release")
EVERY_POINT = pytest.mark.parametrize("name", SETTLER_POINTS)


@pytest.fixture(scope="module")
def fault_shop(lasting_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultShop]:
    """Run a Valkey of this module's own, so that no other test's line is worked, and a healthy settler on it."""
    folder = tmp_path_factory.mktemp("faults")
    with own_valkey(folder) as valkey:
        environment = {
            **lasting_environment,
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


@pytest.fixture
def card(shop: FaultShop, new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale with a long line, which nobody works yet."""
    return full_line(new_sku())


@contextmanager
def struck(shop: FaultShop, card: SaleCard, *, name: str, action: str, folder: Path) -> Iterator[ChildProcess]:
    """Let a settler meet `action` at fault point `name` on the line of `card`, more buyers come, the healthy one wake.

    Gives the one that was struck. After the block everybody is decided once and in order.
    """
    with shop.victim(f"{name}:{action}:{1 if name in ONCE_A_TURN else 2}", folder=folder) as victim:
        victim.wait_until_it_reaches(name)
        if action == "kill":
            assert victim.process.wait(timeout_seconds=120)
            assert victim.process.exit_code == -signal.SIGKILL
        latecomers(card)
        shop.wake_healthy()
        # The healthy one is done although the other still sleeps: nothing that a sleeper keeps is kept for ever.
        wait_until_decided(card)
        yield victim.process
    assert_decided_once_and_in_order(card)


@EVERY_POINT
def test_a_settler_killed_there_costs_nobody_anything(
    name: str, shop: FaultShop, card: SaleCard, tmp_path: Path
) -> None:
    with struck(shop, card, name=name, action="kill", folder=tmp_path) as victim:
        assert not victim.running


@pytest.mark.parametrize("name", ["after_take", "after_commit"])
def test_a_settler_killed_among_many_lines_costs_nobody_anything(
    name: str, shop: FaultShop, new_sku: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its second line, when the first one was answered and its lock given back."""
    lines = [full_line(new_sku()) for _ in range(MANY_SKUS)]
    # Each line is one batch, and the second one of the victim meets the fault.
    monkeypatch.setitem(cast(dict[str, str], shop.environment), "FAIRDROP_SETTLE_BATCH", str(BUYERS + LATE))
    # The lock of its first line must not end before the line is decided, also where the machine stands still.
    monkeypatch.setitem(cast(dict[str, str], shop.environment), "FAIRDROP_LOCK_TTL_MS", "20000")
    with shop.victim(f"{name}:kill:2", folder=tmp_path) as victim:
        victim.wait_until_it_reaches(name)
        assert victim.process.wait(timeout_seconds=120)
        assert victim.process.exit_code == -signal.SIGKILL
        (first,) = [line for line in lines if decided(line)]
        assert decided(first) == BUYERS
        assert redis.connect().get(keys.lock(first.sku)) is None
        for line in lines:
            latecomers(line)
        shop.wake_healthy()
        for line in lines:
            wait_until_decided(line)
    for line in lines:
        assert_decided_once_and_in_order(line)


@EVERY_POINT
def test_a_settler_frozen_there_beyond_its_lock_changes_nothing_when_it_wakes(
    name: str, shop: FaultShop, card: SaleCard, tmp_path: Path
) -> None:
    with struck(shop, card, name=name, action="stop", folder=tmp_path) as victim:
        os.kill(victim.pid, signal.SIGCONT)
        # It ends in order only after it has gone on from where it slept.
        victim.ask_to_stop()
        assert victim.wait(timeout_seconds=120)
        assert victim.exit_code == 0


def test_every_place_in_the_code_is_registered_and_every_registered_place_is_in_the_code() -> None:
    calls = [
        ast.literal_eval(node.args[0])
        for folder in ("inventory", "shop", "workers")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "fault_point"
    ]
    assert sorted(calls) == sorted(FAULT_POINTS)


def test_without_a_fault_the_victim_is_an_ordinary_settler(shop: FaultShop, card: SaleCard, tmp_path: Path) -> None:
    """The control: with the variable empty nothing is met, and one settler decides the whole line."""
    latecomers(card)
    with shop.victim("", folder=tmp_path) as victim:
        wait_until_decided(card)
        assert "fault point" not in victim.log.read_text()
    assert_decided_once_and_in_order(card)
