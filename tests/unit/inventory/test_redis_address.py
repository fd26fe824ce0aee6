"""Addresses of a Sentinel and of a Cluster are read in full, and a wrong one is refused without telling its password.
Needs no server.
"""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from inventory.redis.address import Address, read_address


@pytest.mark.parametrize("url", ["redis://127.0.0.1:6379/0", "rediss://:secret@redis.example/1", "unix:///run/redis"])
def test_one_server_is_left_to_the_library(url: str) -> None:
    assert read_address(url) is None


def test_sentinel() -> None:
    nodes = (("one.example", 26379), ("two.example", 26380))
    assert read_address("redis+sentinel://one.example:26379,two.example:26380/kites") == Address(
        nodes, "kites", 0, None, None
    )
    assert read_address("redis+sentinel://shop:p%40ss@one.example:26379,two.example:26380/kites/3") == Address(
        nodes, "kites", 3, "shop", "p@ss"
    )


def test_cluster() -> None:
    assert read_address("redis+cluster://:secret@[::1]:7000,b.example:7001/") == Address(
        (("::1", 7000), ("b.example", 7001)), "", 0, None, "secret"
    )


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:secret@one.example:26379",
        "redis+cluster://:secret@one.example:7000/service",
        "redis+cluster://:secret@one.example",
        "redis+cluster://:secret@",
        "redis+other://:secret@one.example:1",
        "redis+sentinel://:secret@one.example:x/service",
    ],
)
def test_a_wrong_one_is_refused_and_keeps_its_secret(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="REDIS_URL") as refused:
        read_address(url)
    assert "secret" not in str(refused.value)
