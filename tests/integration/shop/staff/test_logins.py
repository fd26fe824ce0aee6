"""Guesses at a password end: by address and by account, for a while, with a word in the log."""

from __future__ import annotations

from collections.abc import Iterator
from secrets import token_hex

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.cache import caches
from django.core.exceptions import ValidationError
from django.test import Client, override_settings
from structlog.testing import capture_logs

from shop.client_address import address_of, limited_address

pytestmark = pytest.mark.usefixtures("shop_database")
PASSWORD = "a long and secret password"
LIMIT = settings.AXES_FAILURE_LIMIT


@pytest.fixture
def account() -> Iterator[str]:
    """Return the name of a member of staff; what failed is forgotten before and after."""
    caches["logins"].clear()
    name = f"staff-{token_hex(4)}"
    # What is counted are the guesses; a hash that is fast to make keeps a hundred of them short.
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        get_user_model().objects.create_superuser(name, password=PASSWORD)
        yield name
    caches["logins"].clear()


def log_in(name: str, password: str, *, address: str = "192.0.2.1", **headers: str) -> int:
    data = {"username": name, "password": password, "next": "/admin/"}
    return Client().post("/admin/login/", data, REMOTE_ADDR=address, headers=headers).status_code


def test_an_account_is_locked_after_many_guesses_from_many_addresses(account: str) -> None:
    """The control: one guess less, and the right password is taken."""
    for number in range(LIMIT - 1):
        assert log_in(account, "a guess", address=f"192.0.2.{number}") == 200
    assert log_in(account, PASSWORD, address="198.51.100.1") == 302
    with capture_logs() as logs:
        statuses = [log_in(account, "a guess", address=f"203.0.113.{number}") for number in range(LIMIT + 1)]
    assert statuses == [200] * (LIMIT - 1) + [429] * 2
    assert [each["action"] for each in logs if each.get("action") == "login_locked"] == ["login_locked"] * 2
    assert log_in(account, PASSWORD, address="198.51.100.2") == 429


def test_an_address_is_locked_after_guesses_at_many_accounts(account: str) -> None:
    for number in range(LIMIT):
        log_in(f"somebody-{number}", "a guess")
    assert log_in(account, PASSWORD) == 429
    assert log_in(account, PASSWORD, address="198.51.100.3") == 302


def test_of_ipv6_the_network_is_locked(account: str) -> None:
    """Its owner has all addresses of it. The control is another network. The log has the address that was locked."""
    for number in range(LIMIT - 1):
        log_in(f"somebody-{number}", "a guess", address=f"2001:db8:0:1::{number}")
    with capture_logs() as logs:
        log_in("somebody-else", "a guess", address="2001:db8:0:1:ffff::1")
    assert [each["address"] for each in logs if each.get("action") == "login_locked"] == ["2001:db8:0:1:ffff::1"]
    assert log_in(account, PASSWORD, address="2001:db8:0:1::ffff") == 429
    assert log_in(account, PASSWORD, address="2001:db8:0:2::1") == 302


def test_the_answer_says_when_to_try_again(account: str) -> None:
    for _ in range(LIMIT):
        log_in(account, "a guess")
    answer = Client().post("/admin/login/", {"username": account, "password": PASSWORD}, REMOTE_ADDR="192.0.2.1")
    assert (answer.status_code, answer["Retry-After"]) == (429, "900")
    assert "15 minutes" in answer.content.decode()


@override_settings(TRUSTED_PROXIES=1)
def test_behind_a_proxy_the_address_is_what_the_proxy_added(account: str) -> None:
    """The first entry is the client's own word: changing it at each guess changes nothing."""
    for number in range(LIMIT):
        log_in(f"somebody-{number}", "a guess", x_forwarded_for=f"10.0.0.{number}, 192.0.2.7")
    assert log_in(account, PASSWORD, x_forwarded_for="10.9.9.9, 192.0.2.7") == 429
    assert log_in(account, PASSWORD, x_forwarded_for="10.9.9.9, 192.0.2.8") == 302


@pytest.mark.parametrize(
    ("proxies", "address"), [(0, "127.0.0.1"), (1, "192.0.2.1"), (2, "198.51.100.1"), (9, "10.0.0.1")]
)
def test_as_many_proxies_are_believed_as_there_are(proxies: int, address: str) -> None:
    with override_settings(TRUSTED_PROXIES=proxies):
        assert address_of("10.0.0.1, 198.51.100.1,192.0.2.1", connection="127.0.0.1") == address
        assert address_of("", connection="127.0.0.1") == "127.0.0.1"


@pytest.mark.parametrize("weak", ["short", "password1234", "123456789012"])
def test_weak_passwords_are_refused(weak: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(weak)


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1::1", "20010db800000001"),
        ("2001:db8:0:1:ffff::2", "20010db800000001"),
        ("192.0.2.1:4711", "192.0.2.1:4711"),
        ("", ""),
    ],
)
def test_limits_count_an_address_or_a_network_of_ipv6(address: str, counted: str) -> None:
    assert limited_address(address) == counted
