"""Which callers are believed to be our proxies. The controls are callers that are not."""

from __future__ import annotations

import pytest
from django.test.utils import override_settings

from shop.client_address import address_of, origin_of

CLIENT, CLIENT_ORIGIN = "203.0.113.9", ("203.0.113.9", "203.0.113")


@pytest.mark.parametrize("proxies", [("10.0.0.0/8",), ("2001:db8::/32", "10.0.0.0/8"), ("::ffff:10.0.0.0/104",)])
def test_a_proxy_of_ipv4_is_known_on_a_listener_of_both_families(proxies: tuple[str, ...]) -> None:
    with override_settings(TRUSTED_PROXIES=proxies):
        assert address_of(CLIENT, connection="::ffff:10.0.0.2") == CLIENT
        assert origin_of(CLIENT.encode(), connection="::ffff:10.0.0.2") == CLIENT_ORIGIN
        assert address_of(f"{CLIENT}, ::ffff:10.0.0.3", connection="::ffff:10.0.0.2") == CLIENT


@pytest.mark.parametrize("stranger", ["::ffff:11.0.0.2", "::10.0.0.2", "2001:db8::2", "11.0.0.2", "", "10.0.0.2:80"])
@override_settings(TRUSTED_PROXIES=("10.0.0.0/8",))
def test_control_of_others_the_header_is_not_believed(stranger: str) -> None:
    assert address_of(CLIENT, connection=stranger) == stranger
    assert origin_of(CLIENT.encode(), connection=stranger) != CLIENT_ORIGIN


@pytest.mark.parametrize("caller", ["10.0.0.2", "::ffff:10.0.0.2"])
@override_settings(TRUSTED_PROXIES=("10.0.0.0/8",))
def test_what_a_client_wrote_itself_is_not_read(caller: str) -> None:
    assert address_of(f"192.0.2.1, {CLIENT}", connection=caller) == CLIENT
