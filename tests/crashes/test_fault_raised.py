"""Proves that an unexpected error at any named place of a settler ends neither the settler nor anybody's request.
One process meets it and must go on by itself: there is no other to help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from inventory.fault_injection import SETTLER_POINTS
from tests.support.crashes.extra_shop import own_valkey
from tests.support.crashes.fault_shop import (
    Victim,
    assert_decided_once_and_in_order,
    decided,
    full_line,
    latecomers,
    settlers_environment,
    unguarded_settler,
    wait_until_decided,
)
from tests.support.servers.shop_processes import settler_process
from tests.support.shopkeeping import shop_of

# Where it is passed once a turn it strikes at the first pass, else in the middle of the line.
FIRST_PASS = ("before_take", "before_release")


@pytest.fixture(scope="module")
def environment(
    lasting_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    """Run a Valkey of this module's own, so that no other test's line is worked."""
    with own_valkey(tmp_path_factory.mktemp("raised")) as valkey:
        yield settlers_environment(lasting_environment, valkey_url=valkey.url)


@pytest.mark.parametrize("name", SETTLER_POINTS)
def test_an_error_there_costs_nobody_anything(
    name: str, environment: Mapping[str, str], shop_database: None, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    fault = f"{name}:raise:{1 if name in FIRST_PASS else 2}"
    with shop_of(environment):
        card = full_line(new_sku())
        latecomers(card)
        with settler_process({**environment, "FAIRDROP_FAULT": fault}, folder=tmp_path, name="victim") as process:
            victim = Victim(process, tmp_path / "victim.log")
            victim.wait_until_it_reaches(name)
            wait_until_decided(card)
            assert process.running
            process.ask_to_stop()
            assert process.wait(timeout_seconds=120)
        assert process.exit_code == 0
        assert victim.log.read_text().count("FaultRaised") > 0  # and not hushed up
        assert_decided_once_and_in_order(card)


@pytest.mark.parametrize("name", ["after_take", "before_release"])
def test_an_error_that_nothing_catches_ends_the_settler(
    name: str, environment: Mapping[str, str], shop_database: None, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """The control: the same run without the catching, and the line stands still."""
    with shop_of(environment):
        card = full_line(new_sku())
        latecomers(card)
        with unguarded_settler("catching", environment, folder=tmp_path, fault=f"{name}:raise:1") as victim:
            victim.wait_until_it_reaches(name)
            assert victim.process.wait(timeout_seconds=120)
            assert victim.process.exit_code == 1
        if name == "after_take":
            assert decided(card) == 0
        with settler_process(environment, folder=tmp_path, name="heir"):  # leave nothing to the next test
            wait_until_decided(card)
