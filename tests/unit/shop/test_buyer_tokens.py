"""Buyer tokens: what proves a buyer, when a page gives a newer one, and when it keeps its hands off."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterator
from functools import partial

import pytest
from django.conf import settings
from django.test import override_settings

from inventory.exceptions import Unauthenticated
from inventory.signing import Signer, signer_for
from shop import buyers
from shop.client_address import network_mark, network_marks

OLD, NEW = "an-old-key-of-32-characters-----", "a-new-key-of-32-characters------"
BUYER = "b" * 22
token_to_set = partial(buyers.token_to_set, issue=lambda: buyers.issue_buyer()[1])


@pytest.fixture(autouse=True)
def fresh_signers() -> Iterator[None]:
    """Let each test read the keys and days of its own settings."""
    for cached in (signer_for, buyers.first_days):
        cached.cache_clear()
    yield
    for cached in (signer_for, buyers.first_days):
        cached.cache_clear()


def token_under(key: str) -> str:
    with override_settings(TOKEN_KEYS=[key]):
        signer_for.cache_clear()
        token = buyers.token_of(BUYER)
    signer_for.cache_clear()
    return token


def token_of_today(monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Return the day and a token of it, even at midnight."""
    day = buyers.today()
    monkeypatch.setattr(buyers, "today", lambda: day)
    return day, buyers.token_of(BUYER)


@override_settings(TOKEN_KEYS=[NEW])
def test_a_token_proves_its_buyer_and_carries_its_day() -> None:
    first_day = buyers.today()
    buyer, token = buyers.issue_buyer()
    assert buyers.verify_token(token) == buyer
    assert int(token.split(".")[1]) in (first_day, int(time.time()) // 86_400)
    assert token_to_set(token) == ""


@override_settings(TOKEN_KEYS=[NEW])
def test_a_token_from_before_tokens_had_a_day_is_good_and_signed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buyers, "today", lambda: buyers.UNDATED_DAY)
    token = f"{BUYER}.{Signer([NEW], purpose='buyer').sign(BUYER)}"
    assert buyers.verify_token(token) == BUYER
    newer = token_to_set(token)
    assert (buyers.verify_token(newer), newer.count(".")) == (BUYER, 2)


@override_settings(TOKEN_KEYS=[NEW], BUYER_DAYS=30)
def test_a_token_ends_after_its_days_and_its_reader_becomes_a_new_buyer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control is its last day."""
    day, token = token_of_today(monkeypatch)
    monkeypatch.setattr(buyers, "today", lambda: day + 30)
    assert buyers.verify_token(token) == BUYER
    monkeypatch.setattr(buyers, "today", lambda: day + 31)
    with pytest.raises(Unauthenticated):
        buyers.verify_token(token)
    assert buyers.verify_token(token_to_set(token)) != BUYER


@override_settings(TOKEN_KEYS=[NEW], BUYER_DAYS=30)
def test_a_token_is_signed_again_in_the_second_half_of_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    day, token = token_of_today(monkeypatch)
    monkeypatch.setattr(buyers, "today", lambda: day + 15)
    assert token_to_set(token) == ""
    monkeypatch.setattr(buyers, "today", lambda: day + 16)
    newer = token_to_set(token)
    assert newer.split(".")[1] == str(day + 16)
    assert buyers.verify_token(newer) == BUYER


@override_settings(TOKEN_KEYS=[NEW])
def test_a_token_without_a_day_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    token = f"{BUYER}.{Signer([NEW], purpose='buyer').sign(BUYER)}"
    monkeypatch.setattr(buyers, "today", lambda: buyers.UNDATED_DAY + settings.BUYER_DAYS)
    assert buyers.verify_token(token) == BUYER
    monkeypatch.setattr(buyers, "today", lambda: buyers.UNDATED_DAY + settings.BUYER_DAYS + 1)
    with pytest.raises(Unauthenticated):
        buyers.verify_token(token)


@override_settings(TOKEN_KEYS=[NEW, OLD])
def test_a_token_of_an_older_key_is_signed_again_for_the_same_buyer() -> None:
    token = token_under(OLD)
    assert buyers.verify_token(token) == BUYER
    newer = token_to_set(token)
    assert newer != token
    assert buyers.verify_token(newer) == BUYER
    assert token_to_set(newer) == ""


@override_settings(TOKEN_KEYS=[OLD])
def test_a_token_of_a_key_that_is_not_known_here_is_left_alone() -> None:
    token = token_under(NEW)
    assert token_to_set(token) == ""
    with pytest.raises(Unauthenticated):
        buyers.verify_token(token)


@pytest.mark.parametrize(
    "token", ["", ".", "..", BUYER, f"{BUYER}.", f"{BUYER}.1.", f"{BUYER}.x.{'s' * 22}", f"{BUYER}.1.{'s' * 21}", "é"]
)
@override_settings(TOKEN_KEYS=[NEW])
def test_what_has_not_the_form_of_a_token_is_replaced(token: str) -> None:
    assert buyers.verify_token(token_to_set(token))
    with pytest.raises(Unauthenticated):
        buyers.verify_token(token)


@pytest.mark.parametrize("change", [(0, "c"), (23, "9"), (-1, "!")])
@override_settings(TOKEN_KEYS=[NEW])
def test_a_changed_token_proves_nobody(change: tuple[int, str]) -> None:
    """The day is signed, too."""
    letters = list(buyers.token_of(BUYER))
    letters[change[0]] = change[1]
    with pytest.raises(Unauthenticated):
        buyers.verify_token("".join(letters))


@override_settings(TOKEN_KEYS=[NEW, OLD])
def test_a_token_names_the_network_to_which_it_was_given() -> None:
    """The mark is signed, and stays when a page signs the token again."""
    buyer, token = buyers.issue_buyer("192.0.2")
    assert buyers.verify_token(token) == buyer
    assert buyers.mark_in(token) == network_mark("192.0.2") != network_mark("198.51.100")
    assert buyers.mark_in(buyers.issue_buyer()[1]) == ""
    forged = token.replace(network_mark("192.0.2"), network_mark("198.51.100"))
    with pytest.raises(Unauthenticated):
        buyers.verify_token(forged)
    with override_settings(TOKEN_KEYS=[OLD, NEW]):
        signer_for.cache_clear()
        newer = token_to_set(token)
        assert (newer != token, buyers.verify_token(newer), buyers.mark_in(newer)) == (
            True,
            buyer,
            buyers.mark_in(token),
        )
        assert network_marks("192.0.2") == {buyers.mark_in(token), network_mark("192.0.2")}


@override_settings(TOKEN_KEYS=[NEW])
def test_the_mark_of_a_network_stays_what_it_was() -> None:
    """Orders and revoked networks keep marks for months: another way to reckon them must give the same letters."""
    plain = hmac.digest(NEW.encode(), b"network:2001:db8:7", "sha256").hex()
    assert network_mark("2001:db8:7") == plain[:12]


@override_settings(TOKEN_KEYS=[NEW])
def test_a_reader_who_gets_no_token_keeps_a_good_one() -> None:
    assert buyers.token_to_set("", issue=str) == ""
    good = buyers.token_of(BUYER)
    assert buyers.token_to_set(good, issue=str) == ""
    with override_settings(TOKEN_KEYS=[OLD, NEW]):
        signer_for.cache_clear()
        assert buyers.verify_token(buyers.token_to_set(good, issue=str)) == BUYER
