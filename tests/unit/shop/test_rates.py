"""Token buckets by address and network, and what a call is counted by. Needs no server."""

from __future__ import annotations

import psutil
import pytest
from django.test import override_settings

from shop.client_address import Origin, address_of, network_of, origin_of
from shop.gate.server import rates
from shop.gate.server.rates import ADDRESSES_OF_A_NETWORK, LOOK_AT, MAX_KEPT, Rates

HOME: Origin = ("192.0.2.1", "192.0.2")
NEIGHBOUR: Origin = ("192.0.2.2", "192.0.2")
ELSEWHERE: Origin = ("198.51.100.1", "198.51.100")
MAX_MEGABYTES = 200


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(rates, "monotonic", made)
    return made


def taken(limits: Rates, origin: Origin, *, calls: int) -> int:
    return sum(limits.take(origin) == 0 for _ in range(calls))


def test_an_address_may_do_so_much_at_once_and_then_so_much_a_second(clock: Clock) -> None:
    limits = Rates(5, 2)
    assert taken(limits, HOME, calls=8) == 5
    assert limits.take(HOME) == 1
    clock.now += 1
    assert taken(limits, HOME, calls=8) == 2
    clock.now += 1000
    assert taken(limits, HOME, calls=8) == 5


def test_the_wait_is_told_in_whole_seconds_and_is_enough(clock: Clock) -> None:
    limits = Rates(1, 0.1)
    assert limits.take(HOME) == 0
    assert limits.take(HOME) == 10
    clock.now += 10
    assert limits.take(HOME) == 0


def test_another_address_is_not_refused(clock: Clock) -> None:
    limits = Rates(5, 2)
    taken(limits, HOME, calls=8)
    assert taken(limits, ELSEWHERE, calls=8) == 5


def test_the_addresses_of_a_network_share_what_it_may_do(clock: Clock) -> None:
    limits = Rates(5, 2)
    found = sum(taken(limits, (f"192.0.2.{number}", "192.0.2"), calls=8) for number in range(10))
    assert found == 5 * ADDRESSES_OF_A_NETWORK
    assert limits.take(ELSEWHERE) == 0


def test_what_is_refused_costs_nothing(clock: Clock) -> None:
    limits = Rates(5, 2)
    taken(limits, HOME, calls=1000)
    clock.now += 0.5
    assert limits.take(HOME) == 0


def test_what_is_given_back_may_be_done_again(clock: Clock) -> None:
    limits = Rates(5, 2)
    taken(limits, HOME, calls=5)
    limits.give_back(HOME)
    assert taken(limits, HOME, calls=3) == 1
    limits.give_back(ELSEWHERE)
    assert taken(limits, ELSEWHERE, calls=8) == 5


def test_no_limit_is_none(clock: Clock) -> None:
    """The control of all of the above."""
    assert taken(Rates(0, 0), HOME, calls=100) == 100


def test_the_oldest_are_forgotten_and_who_calls_on_is_not(clock: Clock) -> None:
    limits = Rates(5, 0.001, max_buckets=100)
    taken(limits, HOME, calls=5)
    for number in range(1000):
        limits.take((f"10.{number}", f"net-{number}"))
        if number % 10 == 0:
            limits.give_back(HOME)
            assert limits.take(HOME) == 0
        assert len(limits) <= 100
    assert limits.take(HOME) > 0
    for number in range(100):
        limits.take((f"11.{number}", f"net-{number}"))
    assert limits.take(HOME) == 0


def test_what_is_full_again_is_not_kept(clock: Clock) -> None:
    """The control: where nothing comes back, every one of them is."""
    for per_second, max_buckets in ((2, 3 * LOOK_AT), (0.001, 8 * LOOK_AT)):
        limits = Rates(5, per_second)
        for number in range(4 * LOOK_AT):
            limits.take((f"10.{number}", f"net-{number}"))
            clock.now += 0.001
        assert 0 < len(limits) <= max_buckets
        assert (len(limits) == 8 * LOOK_AT) is (per_second < 1)


def test_a_million_addresses_take_no_more_memory_than_they_may() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    limits = Rates(1000, 0.001, max_buckets=MAX_KEPT)  # none is full again before the end
    for number in range(MAX_KEPT):
        limits.take((f"{number >> 16}.{number >> 8 & 255}.{number & 255}.1", f"{number >> 16}.{number >> 8 & 255}"))
    assert MAX_KEPT // 2 <= len(limits) <= MAX_KEPT
    assert process.memory_info().rss - before <= MAX_MEGABYTES * 2**20


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.77", "192.0.2"),
        ("2001:db8:1:2::77", "20010db80001"),
        ("::ffff:192.0.2.77", "192.0.2"),
        ("rubbish", "?rubbish"),
        ("", "?"),
    ],
)
def test_a_network_is_the_24_of_ipv4_and_the_48_of_ipv6(address: str, network: str) -> None:
    assert network_of(address) == network


TRUSTED = ("127.0.0.0/8", "10.0.0.0/8", "::1/128")


@pytest.mark.parametrize(
    ("forwarded_for", "connection", "found"),
    [
        ("192.0.2.1", "127.0.0.1", "192.0.2.1"),
        ("203.0.113.9, 192.0.2.1", "127.0.0.1", "192.0.2.1"),  # what the client wrote stands in front
        ("192.0.2.1, 10.0.0.7", "127.0.0.1", "192.0.2.1"),
        ("192.0.2.1", "::1", "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", "203.0.113.9"),  # nobody of ours
        ("", "127.0.0.1", "127.0.0.1"),
        ("rubbish", "127.0.0.1", "127.0.0.1"),
        ("192.0.2.1, rubbish", "127.0.0.1", "127.0.0.1"),
        ("192.0.2.1, rubbish, 10.0.0.7", "127.0.0.1", "10.0.0.7"),
        (",,, ,", "127.0.0.1", "127.0.0.1"),
        ("é\x00", "127.0.0.1", "127.0.0.1"),
        ("x" * 10_240, "127.0.0.1", "127.0.0.1"),
        (",".join(["203.0.113.9"] * 1000) + ", 192.0.2.1", "127.0.0.1", "192.0.2.1"),
        ("2001:db8::1", "10.1.1.1", "2001:db8::1"),
    ],
)
@override_settings(TRUSTED_PROXIES=TRUSTED)
def test_only_what_proxies_of_ours_added_is_read(forwarded_for: str, connection: str, found: str) -> None:
    assert address_of(forwarded_for, connection=connection) == found


@pytest.mark.parametrize(("proxies", "found"), [(0, "127.0.0.1"), (1, "192.0.2.2"), (2, "192.0.2.1"), (9, "192.0.2.1")])
def test_a_number_of_proxies_is_so_many_hops(proxies: int, found: str) -> None:
    with override_settings(TRUSTED_PROXIES=proxies):
        assert address_of("192.0.2.1, 192.0.2.2", connection="127.0.0.1") == found


@override_settings(TRUSTED_PROXIES=TRUSTED)
def test_a_call_is_counted_by_address_and_network() -> None:
    assert origin_of(b"192.0.2.1", connection="127.0.0.1", proxies=TRUSTED) == HOME
    assert origin_of(b"192.0.2.1", connection="192.0.2.2", proxies=TRUSTED) == NEIGHBOUR
    assert origin_of(b"rubbish", connection="127.0.0.1", proxies=TRUSTED) == ("127.0.0.1", "127.0.0")
    assert origin_of(b"9.9.9.9, 192.0.2.1 ", connection="127.0.0.1", proxies=1) == HOME
    assert origin_of(None, connection="192.0.2.2", proxies=TRUSTED) == NEIGHBOUR
    assert origin_of(b"2001:db8:1:2::77", connection="::1", proxies=TRUSTED) == ("20010db800010002", "20010db80001")
