"""TLS and the Sentinels' own password are read from an address, and nothing else may stand behind a question mark.
Needs no server.
"""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from inventory.redis.address import Address, read_address


def test_tls_and_the_sentinels_own_password() -> None:
    watched = read_address("rediss+sentinel://:secret@one.example:26379/kites/3?sentinel_password=p%40ss")
    assert watched == Address((("one.example", 26379),), "kites", 3, None, "secret", tls=True, sentinel_password="p@ss")
    clustered = read_address("rediss+cluster://one.example:7000")
    assert clustered == Address((("one.example", 7000),), "", 0, None, None, tls=True)


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://one.example:7000?sentinel_password=secret",
        "redis+sentinel://one.example:26379/kites?password=secret",
        "redis+sentinel://one.example:26379/kites?sentinel_password=secret&more=1",
    ],
)
def test_what_is_not_known_is_refused_and_keeps_its_secret(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="REDIS_URL") as refused:
        read_address(url)
    assert "secret" not in str(refused.value)
