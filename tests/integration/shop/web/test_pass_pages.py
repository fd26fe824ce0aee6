"""A browser without script waits for its pass on a page that reloads itself, and buys with it; one network gets few."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import urljoin

import pytest
from django.http import HttpResponse
from django.test import Client, override_settings

from shop.access import waiting
from shop.buyers import COOKIE_NAME, mark_in
from shop.client_address import network_mark, network_of
from shop.models import Sale
from shop.sales.catalogue import SaleCard
from shop.web.pages import NO_TOKEN
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
HERE, THERE = "192.0.2.1", "198.51.100.1"


@pytest.fixture(autouse=True)
def short_wait() -> Iterator[None]:
    """Let a wait be over in a second."""
    with override_settings(PASS_WAIT_SECONDS=1, TRUSTED_PROXIES=0):
        yield


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """A sale that asks for a pass."""
    return make_sale(new_sku(), units=50, pass_mode="always")


def look(browser: Client, card: SaleCard, *, address: str = HERE) -> HttpResponse:
    return browser.get(f"/sales/{card.slug}/pass/", REMOTE_ADDR=address)


def press(browser: Client, card: SaleCard, *, key: str = "first-press") -> HttpResponse:
    form = {"quantity": "1", "idempotency_key": key}
    return browser.post(f"/sales/{card.slug}/", form, headers={"sec-fetch-site": "same-origin"})


def wait_for_pass(browser: Client, card: SaleCard) -> None:
    wait_until(lambda: b"Your pass is ready" in look(browser, card).content)


def test_who_waits_is_given_a_pass_and_buys_with_it(card: SaleCard) -> None:
    browser = Client()
    refused = press(browser, card)
    assert (refused.status_code, b"A pass is needed here" in refused.content) == (403, True)
    first = look(browser, card)
    assert first.status_code == 200
    assert b"1 second to wait" in first.content
    assert b'http-equiv="refresh"' in first.content
    wait_for_pass(browser, card)
    bought = press(browser, card)
    assert (bought.status_code, bought.cookies["pass"].value) == (303, "")  # it is spent
    # The control: another one who did not wait.
    assert press(Client(), card).status_code == 403


def test_who_has_bought_waits_again_for_the_next_pass(new_sku: Callable[[], str]) -> None:
    """The wait of before would give the pass that is spent."""
    card, browser = make_sale(new_sku(), units=50, limit=2, pass_mode="always"), Client()
    for key in ("first-press", "second-press"):
        assert press(browser, card, key=key).status_code == 403
        wait_for_pass(browser, card)
        assert press(browser, card, key=key).status_code == 303


def test_the_same_wait_is_one_pass(card: SaleCard) -> None:
    browser = Client()
    wait_for_pass(browser, card)
    first = browser.cookies["pass"].value
    assert look(browser, card).cookies["pass"].value == first


def test_a_wait_of_somebody_else_begins_again(card: SaleCard) -> None:
    ann, bob = Client(), Client()
    wait_for_pass(ann, card)
    look(bob, card)
    bob.cookies["wait"] = ann.cookies["wait"].value
    assert b"1 second to wait" in look(bob, card).content
    for rubbish in ("", "1.x", "rubbish", "9" * 400, ann.cookies["wait"].value + "x"):
        bob.cookies["wait"] = rubbish
        assert look(bob, card).status_code == 200
        assert "pass" not in bob.cookies


def test_one_network_gets_few_passes_and_another_one_goes_on(card: SaleCard) -> None:
    def waited(address: str) -> int:
        browser = Client()
        look(browser, card, address=address)
        with override_settings(PASS_WAIT_SECONDS=0):
            return look(browser, card, address=address).status_code

    found = [waited(f"192.0.2.{number}") for number in range(waiting.MAX_OF_A_NETWORK + 2)]
    assert found == [200] * waiting.MAX_OF_A_NETWORK + [429] * 2
    assert waited(THERE) == 200


@pytest.mark.parametrize(
    ("language", "words", "not_said"),
    [
        ("en", "one network is given 7 of these at a time", "then has your pass"),
        ("zh-hans", "同一网络一次最多领取 7 张", "届时即可得到通行证"),
    ],
)
def test_who_begins_to_wait_is_not_promised_what_others_may_have_got(
    card: SaleCard, language: str, words: str, not_said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_OF_A_NETWORK", 7)
    browser = Client(headers={"accept-language": language})
    page = look(browser, card).content.decode()
    assert (words in page, not_said in page) == (True, False)


def test_a_browser_that_looks_again_is_counted_once(card: SaleCard) -> None:
    browser = Client()
    look(browser, card)
    with override_settings(PASS_WAIT_SECONDS=0):
        assert {look(browser, card).status_code for _ in range(2 * waiting.MAX_OF_A_NETWORK)} == {200}


def test_its_token_names_the_network_by_which_it_can_be_revoked(card: SaleCard) -> None:
    token = look(Client(), card).cookies[COOKIE_NAME].value
    assert mark_in(token) == network_mark(network_of(HERE)) != ""
    # Where too many went to a network, the gate says so, and the page gives none.
    none = Client().get(f"/sales/{card.slug}/pass/", headers={NO_TOKEN: "1"}, REMOTE_ADDR=HERE)
    assert (none.status_code, COOKIE_NAME in none.cookies) == (401, False)


@pytest.mark.parametrize("page", ["pass", "email"])
@pytest.mark.parametrize(("language", "words"), [("en", "does not know this browser"), ("zh-hans", "不认识这个浏览器")])
def test_who_is_not_known_is_told_why_and_what_to_do(
    new_sku: Callable[[], str], page: str, language: str, words: str
) -> None:
    card, browser = make_sale(new_sku(), units=1, pass_mode="always", email_mode="once"), Client()
    address = f"/sales/{card.slug}/{page}/"
    browser.cookies[COOKIE_NAME] = f"{'b' * 22}.20000.{'s' * 22}"  # signed by a key that is not ours
    for headers in ({}, {NO_TOKEN: "1"}):
        answer = browser.get(address, headers={"accept-language": language, **headers})
        assert (answer.status_code, words in answer.content.decode()) == (401, True)
        (back,) = re.findall(r'<a class="button" href="([^"]*)"', answer.content.decode())
        assert urljoin(address, back) == f"/sales/{card.slug}/"
        browser.cookies.clear()
    # The control: a browser that is known by then sees the page.
    assert browser.get(address, headers={"accept-language": language}).status_code == 200


def test_a_sale_that_asks_for_none_sends_back_to_it(card: SaleCard) -> None:
    Sale.objects.filter(pk=card.sale_id).update(pass_mode="never")
    answer = look(Client(), card)
    assert (answer.status_code, answer["Location"]) == (302, f"/sales/{card.slug}/")
    assert Client().get("/sales/no-such-sale/pass/").status_code == 404
    assert Client().post(f"/sales/{card.slug}/pass/").status_code == 405


def test_the_sale_page_says_it_in_both_languages(card: SaleCard) -> None:
    for language, words in (("en", "This drop asks for a pass."), ("zh-hans", "本场销售需要通行证。")):
        page = Client().get(f"/sales/{card.slug}/", headers={"accept-language": language}).content.decode()
        assert words in page
        assert f'href="/sales/{card.slug}/pass/"' in page
