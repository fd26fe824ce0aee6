"""All keys of a SKU share its hash tag and nothing else; a SKU that would break the tag is refused. Needs no server."""

from __future__ import annotations

import inspect
import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.exceptions import InvalidRequest
from inventory.redis import keys

GLOBAL = {"skus", "lock_names", "queues", "workers", "reconciliations", "checkpoints"}
NOT_KEYS = {"checked_sku", "all_of", "wake_channel", "settled_channel", "replicas_channel", *GLOBAL}
OF_A_SKU = {
    name: function
    for name, function in inspect.getmembers(keys, inspect.isfunction)
    if name not in NOT_KEYS and function.__module__ == keys.__name__
}
SKUS = st.from_regex(keys.SKU_PATTERN, fullmatch=True)


def all_keys(sku: str) -> dict[str, str]:
    """Return every key of `sku` by the name of its function."""
    arguments = {"queue_reply": {"method": "pop", "call": "c"}}
    return {name: function(sku, **arguments.get(name, {})) for name, function in OF_A_SKU.items()}


def test_every_kind_of_key_is_looked_at() -> None:
    assert {"line", "in_flight", "records", "live_units", "stock", "sales", "lock", "fence"} <= set(OF_A_SKU)


@given(sku=SKUS)
def test_all_keys_of_a_sku_carry_its_hash_tag(sku: str) -> None:
    assert {re.findall(r"\{(.*?)\}", key)[0] for key in all_keys(sku).values()} == {sku}


@given(sku=SKUS)
def test_no_two_kinds_share_a_key(sku: str) -> None:
    assert [pair for pair in combinations(all_keys(sku).values(), 2) if pair[0] == pair[1]] == []


@given(one=SKUS, other=SKUS)
def test_no_two_skus_share_a_key(one: str, other: str) -> None:
    assert one == other or not set(all_keys(one).values()) & set(all_keys(other).values())


def test_all_keys_of_a_sku_are_forgotten_with_it() -> None:
    """A function for a key that is added and not listed fails here: the key would outlive its SKU."""
    made = {key for name, key in all_keys("kite").items() if not name.startswith("queue_")}
    assert set(keys.all_of("kite")) == made
    first = (keys.lock, keys.line, keys.in_flight, keys.aside, keys.sales)
    assert keys.all_of("kite")[:5] == [make("kite") for make in first]


def test_every_key_says_its_type_and_lifetime() -> None:
    silent = [name for name, function in OF_A_SKU.items() if "Lives" not in (function.__doc__ or "")]
    assert "Emptied" in (keys.hand_outs.__doc__ or "")
    assert silent == ["hand_outs", "queue_hand_outs"]


@given(sku=SKUS)
def test_a_proper_sku_is_returned_as_it_is(sku: str) -> None:
    assert keys.checked_sku(sku) == sku


@pytest.mark.parametrize("sku", ["", "-a", "a-", "A", "a b", "a{b", "a}b", "a\n", "a:b", "ä", "a" * 41, "a\x00"])
def test_a_sku_that_could_break_a_key_is_refused(sku: str) -> None:
    with pytest.raises(InvalidRequest, match="sku must match"):
        keys.checked_sku(sku)
