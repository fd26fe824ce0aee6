"""Proves the pages of sales: each state is shown, each foreseeable fault has its status, a double press is one request.
Uses the real servers; no script runs here, so all of it holds for browsers without script.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from shop import buyers
from shop.models import Order, Sale
from shop.sales import catalogue
from shop.staff import sale_control
from shop.web.views import MAX_OVER, sale_page
from tests.support.pages import OWN_PAGE, decided, key_in, known_client, make_kite_sale, page_of, press, text_of
from tests.support.staff import count_queries

pytestmark = pytest.mark.usefixtures("shop_database")
MakeSale = Callable[..., Sale]


@pytest.fixture
def make_sale(new_sku: Callable[[], str]) -> MakeSale:
    """Return a function that makes a primed sale of its own SKU."""
    return lambda **terms: make_kite_sale(new_sku(), **terms)


def form_in(response: HttpResponse) -> dict[str, str]:
    """Return what the form of a page would send for one unit."""
    found = re.search(r'name="terms_version" form="buy" value="([^"]+)"', text_of(response))
    assert found
    return {"quantity": "1", "idempotency_key": key_in(response), "terms_version": found[1]}


@pytest.mark.parametrize("limit", [7, 0])
def test_what_holding_for_nothing_costs_is_shown_before_the_press(make_sale: MakeSale, limit: int) -> None:
    """The control is a sale that counts nothing by network."""
    sale = make_sale()
    Sale.objects.filter(pk=sale.pk).update(per_network_limit=limit)
    text = text_of(Client().get(page_of(sale)))
    rule = text.index(f"After {settings.MAX_ENDED_REQUESTS} requests of yours that ended without a sale")
    assert rule < text.index('<form class="buy"')
    assert ('<dt>Per network</dt><dd class="num">up to 7</dd>' in text) is bool(limit)
    assert ("What came back counts for your network, too." in text) is bool(limit)


def test_the_list_names_open_coming_and_closed_sales(make_sale: MakeSale) -> None:
    # The last one began now: of those that are over only the latest are listed.
    sales = [make_sale(), make_sale(opens=30), make_sale(opens=0, operator_state="closed")]
    text = text_of(Client().get("/"))
    places = [text.index(page_of(sale)) for sale in sales]
    assert places == sorted(places)
    assert (
        text.index('id="open"')
        < places[0]
        < text.index('id="coming"')
        < places[1]
        < text.index('id="over"')
        < places[2]
    )


def test_of_the_sales_that_are_over_only_the_latest_are_listed(make_sale: MakeSale) -> None:
    over = [make_sale(opens=0, operator_state="closed") for _ in range(MAX_OVER + 1)]
    text = text_of(Client().get("/"))
    assert text[text.index('id="over"') :].count('<li class="card') == MAX_OVER
    assert page_of(over[0]) not in text
    assert page_of(over[-1]) in text
    assert Client().get(page_of(over[0])).status_code == 200


def test_an_open_sale_says_price_rule_limit_hold_and_honest_stock(make_sale: MakeSale) -> None:
    text = text_of(Client().get(page_of(make_sale(units=5, limit=3, hold_seconds=600))))
    for words in ("€15.00", "€20.00", "First come, first served", "5 left", "up to 3", "10 minutes"):
        assert words in text
    assert "<option>3</option>" in text


def test_many_units_are_shown_as_a_band(make_sale: MakeSale) -> None:
    text = text_of(Client().get(page_of(make_sale(units=1234))))
    assert "more than 1,000 left" in text or "more than 1000 left" in text


def test_pressing_leads_with_303_to_the_own_ticket_with_its_place(make_sale: MakeSale) -> None:
    client, sale = Client(), make_sale()
    answer = press(client, sale)
    assert answer.status_code == 303
    ticket = client.get(answer["Location"])
    assert ticket.status_code == 200
    assert "Your place in line" in text_of(ticket)
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in text_of(ticket)
    assert "no-store" in ticket["Cache-Control"]
    assert answer["Location"] in text_of(client.get(page_of(sale)))


def test_a_script_is_told_where_its_press_leads_and_gets_the_same_cookies(make_sale: MakeSale) -> None:
    sale = make_sale()
    script, person = Client(headers={"Accept": "application/json"}), Client()
    told, led = press(script, sale), press(person, sale)
    assert (told.status_code, told["Content-Type"]) == (200, "application/json")
    assert told.json().keys() == {"location"}
    assert set(told.cookies) == set(led.cookies) >= {"ticket", "proof"}
    assert "no-store" in told["Cache-Control"]
    assert script.get(told.json()["location"]).status_code == 200
    assert press(script, sale, key="first-press").json() == told.json()


def test_a_script_whose_press_is_refused_gets_the_page_that_says_why(make_sale: MakeSale) -> None:
    client, sale = Client(headers={"Accept": "application/json"}), make_sale()
    press(client, sale)
    answer = press(client, sale, key="another-press")
    assert answer.status_code == 409
    assert "Over the limit for one person" in text_of(answer)


def test_a_double_press_is_the_same_request(make_sale: MakeSale) -> None:
    client, sale = Client(), make_sale(limit=5)
    key = key_in(client.get(page_of(sale)))
    first, second = press(client, sale, key=key), press(client, sale, key=key)
    assert first["Location"] == second["Location"]
    assert press(client, sale)["Location"] != first["Location"]


@pytest.mark.parametrize(
    ("terms", "status", "words"),
    [
        ({"opens": 30}, 425, "Not open right now"),
        ({"opens": -60, "closes": -1}, 410, "This drop is over"),
        ({"operator_state": "closed"}, 410, "This drop is over"),
        ({"operator_state": "paused", "pause_reason": "A fault at packing."}, 425, "A fault at packing."),
    ],
)
def test_a_sale_that_takes_nobody_says_why(make_sale: MakeSale, terms: dict[str, Any], status: int, words: str) -> None:
    sale = make_sale(**terms)
    answer = press(Client(), sale, key="a-key-of-mine")
    assert answer.status_code == status
    assert words in text_of(answer)
    assert not Order.objects.filter(sale=sale).exists()


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"held": 1, "sold": 4}, ["No unit is free right now.", "1 is held and not paid for yet."]),
        ({"held": 2, "sold": 3}, ["2 are held and not paid for yet."]),
        (
            {"held": 0, "sold": 5},
            ["Every unit is paid for. One comes back only by a refund", "Stand by"],
        ),
    ],
)
def test_a_sale_without_a_free_unit_says_what_can_still_happen(
    make_sale: MakeSale, figures: dict[str, int], words: list[str]
) -> None:
    card = replace(catalogue.find_sale(make_sale().slug), available=0, **figures)
    text = text_of(sale_page(RequestFactory().get("/"), card))
    assert all(each in text for each in words)


def test_a_sale_that_staff_closed_names_no_moment_that_is_still_to_come(make_sale: MakeSale) -> None:
    early, late, begun = make_sale(operator_state="closed"), make_sale(opens=-60, closes=-1), make_sale()
    sale_control.close(begun.slug, actor="anna")
    for sale, words in ((early, (True, False)), (late, (False, True)), (begun, (True, True))):
        text = text_of(Client().get(page_of(sale)))
        news = text.partition("This drop is over")[2].partition("</div>")[0]
        assert ("The shop closed it early." in news, "<time" in news) == words


@pytest.mark.parametrize("in_use", [True, False])
def test_the_footer_has_the_pages_of_the_shop_and_the_truth_about_money(in_use: bool) -> None:
    links = {"terms": "https://shop.example/terms", "support": "mailto:help@shop.example"}
    with override_settings(SANDBOX_IN_USE=in_use, SHOP_LINKS=links):
        text = text_of(Client().get("/past/"))
    assert ("no money moves here" in text) is in_use
    assert '<a href="https://shop.example/terms">Terms</a> <a href="mailto:help@shop.example">Support</a>' in text
    assert "Imprint" not in text


def test_a_coming_sale_has_a_countdown_and_a_disabled_button(make_sale: MakeSale) -> None:
    text = text_of(Client().get(page_of(make_sale(opens=30))))
    assert 'role="timer"' in text
    assert re.search(r"<button[^>]* disabled", text)


def quantities_in(response: HttpResponse) -> list[str]:
    """Return what the form of a page offers; nothing when it has no form."""
    return re.findall(r"<option[^>]*>(\d+)</option>", text_of(response))


def test_over_the_limit_is_409_and_says_the_limit(make_sale: MakeSale) -> None:
    answer = press(Client(), make_sale(limit=2), quantity="3")
    assert answer.status_code == 409
    assert "Over the limit for one person" in text_of(answer)
    assert "2 units a person in this drop." in text_of(answer)
    assert "You have" not in text_of(answer)
    assert quantities_in(answer) == ["1", "2"]


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "4 units a person in this drop. You have 3 already: in line, held or paid for. You can ask for 1 more."),
        ("zh-hans", "本次发售每人限购 4 件。 您已有 3 件：排队中、已保留或已付款。 您还可以要 1 件。"),
    ],
)
def test_over_the_limit_the_form_says_how_many_one_has_and_offers_what_is_left(
    make_sale: MakeSale, language: str, words: str
) -> None:
    client, sale = Client(), make_sale(limit=4)
    client.cookies["language"] = language
    assert quantities_in(client.get(page_of(sale))) == ["1", "2", "3", "4"]
    press(client, sale, quantity="3")
    answer = press(client, sale, quantity="2")
    assert answer.status_code == 409
    assert words in text_of(answer)
    assert quantities_in(answer) == ["1"]
    # The control: that much is let in, and another person has nothing yet.
    assert press(client, sale, quantity="1").status_code == 303
    assert press(Client(), sale, quantity="2").status_code == 303


def test_who_has_all_that_one_person_may_have_is_offered_no_more(make_sale: MakeSale) -> None:
    client, sale = Client(), make_sale(limit=2)
    press(client, sale, quantity="2")
    answer = press(client, sale)
    assert answer.status_code == 409
    assert "You have 2 already" in text_of(answer)
    assert "You can ask for" not in text_of(answer)
    assert quantities_in(answer) == []
    assert 'id="buy"' not in text_of(answer)
    assert ' form="buy" formaction' not in text_of(answer)  # the other language needs no form that is not there


def test_other_limits_are_not_looked_up(make_sale: MakeSale, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many requests that ended is another limit: what one has is not what stands in the way."""
    client, sale = Client(), make_sale(limit=2)
    press(client, sale)
    monkeypatch.setattr("inventory.line.admission.MAX_ENDED_REQUESTS", 0)
    answer = press(client, sale)
    assert "This drop takes no more of your requests" in text_of(answer)
    assert quantities_in(answer) == ["1", "2"]


def test_a_price_that_rose_since_the_page_was_loaded_is_said_before_anything_is_asked(make_sale: MakeSale) -> None:
    sale, client = make_sale(), Client()
    loaded = form_in(client.get(page_of(sale)))
    sale_control.change_terms(sale.slug, actor="test", price=Decimal("199.00"))
    answer = client.post(page_of(sale), loaded, headers=OWN_PAGE)
    assert answer.status_code == 409
    assert "The price is now €199.00, up to 1 per person, held for you 10 minutes from your turn." in text_of(answer)
    again = form_in(answer)
    assert (again["idempotency_key"], again["terms_version"]) == (loaded["idempotency_key"], "2")
    assert client.post(page_of(sale), again, headers=OWN_PAGE).status_code == 303


def test_a_price_that_fell_is_no_question(make_sale: MakeSale) -> None:
    sale, client = make_sale(), Client()
    loaded = form_in(client.get(page_of(sale)))
    sale_control.change_terms(sale.slug, actor="test", price=Decimal("1.00"))
    assert client.post(page_of(sale), loaded, headers=OWN_PAGE).status_code == 303


@pytest.mark.parametrize("version", ["-1", "two", "1" * 16, "999"])
def test_a_senseless_terms_version_is_400(make_sale: MakeSale, version: str) -> None:
    client, sale = Client(), make_sale()
    loaded = form_in(client.get(page_of(sale)))
    assert client.post(page_of(sale), {**loaded, "terms_version": version}, headers=OWN_PAGE).status_code == 400


@pytest.mark.parametrize("quantity", ["0", "-1", "1.5", "", "two", "٣", "1" * 40, "1\x00"])
def test_a_senseless_quantity_is_400(make_sale: MakeSale, quantity: str) -> None:
    assert press(Client(), make_sale(), quantity=quantity).status_code == 400


@pytest.mark.parametrize("key", ["short", "x" * 65, "with space in it", "\x00\x00\x00\x00\x00\x00\x00\x00\x00"])
def test_a_senseless_key_is_400(make_sale: MakeSale, key: str) -> None:
    assert press(Client(), make_sale(), key=key).status_code == 400


def test_the_same_key_with_another_quantity_is_422_and_gets_a_new_key(make_sale: MakeSale) -> None:
    client, sale = Client(), make_sale(limit=3)
    key = key_in(client.get(page_of(sale)))
    press(client, sale, key=key)
    answer = press(client, sale, key=key, quantity="2")
    assert answer.status_code == 422
    assert key_in(answer) != key


def test_whose_first_answer_was_lost_is_led_to_that_request(make_sale: MakeSale) -> None:
    client, sale = Client(), make_sale(limit=3)
    key = key_in(client.get(page_of(sale)))
    first = press(client, sale, key=key)["Location"]
    for cookie in ("ticket", "proof", "asked", "asked-0"):  # they came with the answer
        client.cookies.pop(cookie, None)
    answer = press(client, sale, key=key, quantity="2")
    assert (answer.status_code, f'href="{first}"' in text_of(answer)) == (422, True)
    assert client.get(first).status_code == 200


def test_enter_in_the_field_of_the_code_presses_the_button_that_buys(make_sale: MakeSale) -> None:
    """A browser presses the first button of a form. The control: without that field the languages may come first."""
    for codes_required, first in ((True, "Get mine"), (False, "简体中文")):
        text = text_of(Client().get(page_of(make_sale(codes_required=codes_required))))
        buttons = re.findall(r'<button[^>]*form="buy"[^>]*>([^<]*)|id="buy".*?<button[^>]*>([^<]*)', text, re.DOTALL)
        assert "".join(buttons[0]) == first


def test_a_press_during_a_pause_is_told_of_the_pause(make_sale: MakeSale) -> None:
    """The control is one that comes too early: only that one is told of a moment."""
    sale, coming = make_sale(operator_state="paused"), make_sale(opens=30)
    said, early = (text_of(press(Client(), each, key="a-key-of-mine")) for each in (sale, coming))
    assert ("before the moment shown" in said, "before the moment shown" in early) == (False, True)
    for each, text in ((sale, said), (coming, early)):
        (alert,) = re.findall(r'role="alert">(.*?)</div>', text, re.DOTALL)
        assert f'href="{page_of(each)}"' in alert


def test_a_token_of_an_unknown_key_is_kept_until_the_buyer_wants_a_new_one(make_sale: MakeSale) -> None:
    """Another process may know the key. The control is a cookie that is no token: it is replaced at once."""
    client, sale = Client(), make_sale()
    unknown = f"{'b' * 22}.20000.{'s' * 22}"
    client.cookies[buyers.COOKIE_NAME] = unknown
    shown = client.get(page_of(sale))
    assert (shown.status_code, buyers.COOKIE_NAME in shown.cookies) == (200, False)
    refused = client.post(page_of(sale), form_in(shown), headers=OWN_PAGE)
    assert (refused.status_code, buyers.COOKIE_NAME in refused.cookies) == (401, False)
    assert 'name="new_buyer"' in text_of(refused)
    press_again = {**form_in(refused), "new_buyer": "1"}
    taken = client.post(page_of(sale), press_again, headers=OWN_PAGE)
    assert taken.status_code == 303
    buyer = buyers.verify_token(taken.cookies[buyers.COOKIE_NAME].value)
    # The answer was lost, so the browser has the cookie of before: sent again, the press is the same buyer's request.
    client.cookies[buyers.COOKIE_NAME] = unknown
    again = client.post(page_of(sale), press_again, headers=OWN_PAGE)
    assert (again["Location"], buyers.verify_token(again.cookies[buyers.COOKIE_NAME].value)) == (
        taken["Location"],
        buyer,
    )

    other = Client()
    other.cookies[buyers.COOKIE_NAME] = "no token"
    assert buyers.verify_token(other.get(page_of(sale)).cookies[buyers.COOKIE_NAME].value)


def test_redis_away_is_503_with_the_same_key_so_that_a_retry_is_safe(
    make_sale: MakeSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, sale = Client(), make_sale()
    key = key_in(client.get(page_of(sale)))

    def away(*_args: Any, **_kwargs: Any) -> None:
        raise RedisUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(redis, "connect", away)
        answer = press(client, sale, key=key)
    assert answer.status_code == 503
    assert answer["Retry-After"] == "1"
    assert key_in(answer) == key


def test_the_database_away_is_503_not_500(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(catalogue, "list_sales", away)
    answer = Client().get("/")
    assert answer.status_code == 503
    assert "connection refused" not in text_of(answer)
    assert re.search('<meta http-equiv="refresh" content="[3-7]">', text_of(answer))
    assert "<noscript><meta" not in text_of(answer)


def test_a_press_from_another_site_or_from_nowhere_is_refused(make_sale: MakeSale) -> None:
    sale = make_sale()
    form = {"quantity": "1", "idempotency_key": "k" * 20}
    for headers in ({}, {"sec-fetch-site": "cross-site"}, {"origin": "https://elsewhere.example"}):
        answer = Client().post(page_of(sale), form, headers=headers)
        assert answer.status_code == 403
        assert "Please try that again" in text_of(answer)
    assert Client().post(page_of(sale), form, headers=OWN_PAGE).status_code == 303


def test_a_forged_buyer_cookie_is_replaced(make_sale: MakeSale) -> None:
    client, sale = Client(), make_sale()
    client.cookies[buyers.COOKIE_NAME] = "x" * 22 + ".forged"
    cookie = client.get(page_of(sale)).cookies[buyers.COOKIE_NAME]
    assert buyers.verify_token(cookie.value)
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert buyers.COOKIE_NAME not in client.get(page_of(sale)).cookies


@pytest.mark.parametrize(
    "path", ["/nothing", "/sales/no-such-sale/", "/requests/no-such-request/", "/requests/1-x%00y/"]
)
def test_unknown_addresses_are_404_pages(path: str) -> None:
    answer = known_client()[0].get(path)
    assert answer.status_code == 404
    assert "There is nothing at this address" in text_of(answer)


class InlineCode(HTMLParser):
    """Collects what the content policy would block: inline scripts, styles and handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag == "style" or (tag == "script" and "src" not in names):
            self.found.append(tag)
        self.found += [name for name in names if name == "style" or name.startswith("on")]


def test_pages_carry_a_strict_policy_and_no_inline_code(make_sale: MakeSale) -> None:
    client, buyer = known_client()
    sale = make_sale(limit=3)
    order = decided(sale, buyer=buyer, state="held")
    for path in ("/", page_of(sale), f"/requests/{order.request_id}/", "/nothing"):
        answer, parser = client.get(path), InlineCode()
        parser.feed(text_of(answer))
        assert parser.found == [], path
        assert "default-src 'self'" in answer["Content-Security-Policy"]
        assert "unsafe" not in answer["Content-Security-Policy"]


def test_the_list_takes_as_many_queries_for_ten_sales_as_for_one(make_sale: MakeSale) -> None:
    make_sale()
    few = count_queries(show_list)
    for _ in range(10):
        make_sale()
    assert count_queries(show_list) == few == 1


def show_list() -> None:
    assert Client().get("/").status_code == 200
