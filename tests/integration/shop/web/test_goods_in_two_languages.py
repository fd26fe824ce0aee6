"""The texts of goods in the language of their reader: list, sale, ticket, my tickets, mail, payment, calendar; and the
other language's where one is missing. The pages that come from memory are those of a real web process.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest
from django.db import transaction
from django.test import Client
from icalendar import Calendar
from post_office.models import Email

from shop import buyers
from shop.models import Payment, Product, Sale
from shop.orders import mails
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge
from tests.support import road
from tests.support.http_calls import Caller
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")

ENGLISH = ("Paper kite", "Folded by hand", "It flies.")
CHINESE = ("纸风筝", "手工折成", "它会飞。")
IN = {"en": "en-GB,en;q=0.9", "zh": "zh-CN,zh;q=0.9"}


def describe(
    card: SaleCard, *, english: tuple[str, str, str] = ENGLISH, chinese: tuple[str, str, str] = CHINESE
) -> SaleCard:
    """Give a sale its title, tagline and description in both languages."""
    texts = {"tagline": english[1], "tagline_zh": chinese[1], "description": english[2], "description_zh": chinese[2]}
    with transaction.atomic():
        Sale.objects.filter(pk=card.sale_id).update(title=english[0], title_zh=chinese[0])
        Product.objects.filter(slug=card.sku).update(**texts)
    return catalogue.find_sale(card.slug)


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return describe(make_sale(new_sku(), units=3, limit=3))


def page(path: str, language: str, *, client: Client | None = None) -> str:
    answer = (client or Client()).get(path, headers={"accept-language": IN[language]})
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def assert_only(text: str, wanted: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert [word for word in wanted if word not in text] == []
    assert [word for word in other if word in text] == []


@pytest.mark.parametrize(("language", "wanted", "other"), [("en", ENGLISH, CHINESE), ("zh", CHINESE, ENGLISH)])
def test_a_sale_is_told_in_the_language_of_its_page(
    card: SaleCard, language: str, wanted: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assert_only(page(f"/sales/{card.slug}/", language), wanted, other)
    (item,) = re.findall(rf'<li class="card[^>]*>(?:(?!</li>).)*{card.slug}.*?</li>', page("/", language), re.DOTALL)
    assert_only(item, wanted[:2], other)


@pytest.mark.parametrize(("language", "wanted", "other"), [("en", ENGLISH, CHINESE), ("zh", CHINESE, ENGLISH)])
def test_so_are_a_ticket_and_the_list_of_tickets(
    card: SaleCard, language: str, wanted: tuple[str, ...], other: tuple[str, ...]
) -> None:
    client = Client()
    buyer, client.cookies[buyers.COOKIE_NAME] = buyers.issue_buyer()
    (name,) = road.queue(card, buyer)
    road.settle_line(card)
    for path in (f"/requests/{name}/", "/tickets/"):
        assert_only(page(path, language, client=client), wanted[:1], other[:1])


@pytest.mark.parametrize(("language", "wanted", "other"), [("en", ENGLISH, CHINESE), ("zh-hans", CHINESE, ENGLISH)])
def test_so_are_mails(card: SaleCard, language: str, wanted: tuple[str, ...], other: tuple[str, ...]) -> None:
    (name,) = road.queue(card, f"reader-{card.sku}")
    road.settle_line(card)
    mails.keep_address(name, "ada@example.com", language=language, root="http://testserver")
    told = Email.objects.filter(headers__contains={mails.REQUEST_HEADER: name}).get()
    assert_only(told.message, wanted[:1], other[:1])
    mails.forget_address(name)


@pytest.mark.parametrize("pays_by", ["page", "api", "api at once"])
@pytest.mark.parametrize(("language", "wanted"), [("en", ENGLISH), ("zh", CHINESE)])
def test_so_is_what_a_payment_provider_shows(
    card: SaleCard, language: str, wanted: tuple[str, ...], pays_by: str
) -> None:
    client = Client()
    buyer, token = buyers.issue_buyer()
    (name,) = road.queue(card, buyer)
    road.settle_line(card)
    headers = {"accept-language": IN[language]}
    client.cookies[buyers.COOKIE_NAME] = token
    if pays_by == "page":
        answer = client.post(f"/requests/{name}/payment/", headers=headers)
        assert f"1 × {wanted[0]}" in page(answer["Location"], language)
    else:
        body = {"page": True} if pays_by == "api" else {}
        path = f"/api/v1/requests/{name}/payment"
        answer = client.post(path, body, "application/json", headers={**headers, "authorization": f"Bearer {token}"})
        assert answer.status_code == 200, answer.content
    assert Charge.objects.get(reference__in=references(name)).title == f"1 × {wanted[0]}"


def references(name: str) -> list[str]:
    """Return the references of a request's payments."""
    return list(Payment.objects.filter(order__request_id=name).values_list("reference", flat=True))


@pytest.mark.parametrize(("language", "wanted"), [("en", ENGLISH), ("zh", CHINESE)])
def test_so_is_the_calendar(new_sku: Callable[[], str], language: str, wanted: tuple[str, ...]) -> None:
    card = describe(make_sale(new_sku(), units=1, opens_in_seconds=3600, closes_in_seconds=7200))
    answer = Client().get(f"/sales/{card.slug}/opening.ics", headers={"accept-language": IN[language]})
    (event,) = Calendar.from_ical(answer.content).walk("VEVENT")
    assert wanted[0] in event["summary"]


def test_where_one_language_is_missing_the_other_stands_in(new_sku: Callable[[], str]) -> None:
    bare = describe(make_sale(new_sku(), units=1), chinese=("", "", ""))
    assert_only(page(f"/sales/{bare.slug}/", "zh"), ENGLISH, CHINESE)
    mixed = describe(make_sale(new_sku(), units=1), english=("Paper kite", "", "It flies."), chinese=CHINESE)
    assert_only(page(f"/sales/{mixed.slug}/", "en"), ("Paper kite", "手工折成", "It flies."), ("纸风筝", "它会飞。"))


def test_each_language_has_its_own_page_in_memory_and_a_change_is_seen_in_both(
    web: Caller, shown_sale: Callable[..., SaleCard]
) -> None:
    card = shown_sale(units=3)

    def shown(language: str) -> str:
        answer = web.get(f"/sales/{card.slug}/", headers={"Accept-Language": IN[language]})
        assert "etag" in answer.headers  # from memory
        return html.unescape(answer.body.decode())

    assert "Paper kite" in shown("zh")
    describe(card)
    wait_until(lambda: CHINESE[0] in shown("zh") and ENGLISH[1] in shown("en"), what="both pages have the new texts")
    assert_only(shown("zh"), CHINESE, ENGLISH)
    assert_only(shown("en"), ENGLISH, CHINESE)


def test_the_quantity_stays_when_the_language_changes(web: Caller, shown_sale: Callable[..., SaleCard]) -> None:
    card = shown_sale(units=9, limit=5)
    path = f"/sales/{card.slug}/"
    first = web.get(path).body.decode()
    button = re.search(r'<button name="language" value="zh-hans" form="buy" formaction="([^"]+)"', first)
    assert button
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = web.call(
        "POST", button[1], body="quantity=4&idempotency_key=first-press&language=zh-hans", headers=headers
    )
    assert (answer.status, answer.headers["location"]) == (303, f"{path}?quantity=4")
    chosen = web.get(answer.headers["location"], headers={"Cookie": "language=zh-hans"})
    assert "<option selected>4</option>" in chosen.body.decode()
    # The control: everybody else still gets the page from memory, with nothing chosen.
    assert "<option selected>1</option>" in web.get(path).body.decode()


@pytest.mark.parametrize("odd", ["quantity=", "quantity=x", "quantity=-1", "quantity=99999", "quantity=%D9%A3", ""])
def test_an_odd_quantity_is_left_out(card: SaleCard, odd: str) -> None:
    body = f"{odd}&language=zh-hans&next=/sales/{card.slug}/"
    answer = Client().post("/language/", body, content_type="application/x-www-form-urlencoded")
    assert answer["Location"] == f"/sales/{card.slug}/"
    assert Client().get(f"/sales/{card.slug}/?{odd}").status_code == 200


@pytest.mark.parametrize(
    ("path", "back"),
    [
        ("/past/?page=2", "/past/?page=2"),
        ("/tickets/?page=3", "/tickets/?page=3"),
        ("/past/", "/past/"),
        ("/tickets/?page=x", "/tickets/"),
    ],
)
def test_another_language_leads_back_to_the_same_page_of_a_list(card: SaleCard, path: str, back: str) -> None:
    """The control is the page of a sale: the quantity in its address comes with its form."""
    client = Client()
    client.cookies[buyers.COOKIE_NAME] = buyers.issue_buyer()[1]
    for shown, leads_to in ((path, back), (f"/sales/{card.slug}/?quantity=4", f"/sales/{card.slug}/")):
        page = client.get(shown).content.decode()
        button = re.search(r'<form class="tongue" method="post" action="([^"]+)"', page)
        assert button
        assert client.post(html.unescape(button[1]), {"language": "zh-hans"})["Location"] == leads_to


@pytest.mark.parametrize("where", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)"])
def test_the_way_back_never_leads_to_another_site(where: str) -> None:
    answer = Client().post("/language/", query_params={"next": where}, data={"language": "en"})
    assert answer["Location"] == "/"
