"""An opening as a calendar file says when and where, in both languages, and only while it lies ahead. Real servers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client, override_settings
from icalendar import Calendar

from inventory.redis import clocks
from shop.models import Sale
from shop.sales.catalogue import SaleCard
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database")
HARD = "Kite, red; the \\ last\r\none: " + "风筝" * 20


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale that opens in an hour, with a title that wants escaping and folding."""
    made = make_sale(new_sku(), units=2, opens_in_seconds=3600, closes_in_seconds=7200)
    Sale.objects.filter(pk=made.sale_id).update(title=HARD[:80])
    return made


def events(text: bytes) -> list[Calendar]:
    return list(Calendar.from_ical(text).walk("VEVENT"))


@pytest.mark.parametrize(("language", "word"), [("en", "the drop opens"), ("zh-CN", "开售")])
def test_the_file_says_when_and_where(card: SaleCard, language: str, word: str) -> None:
    with override_settings(PUBLIC_URL="https://shop.example"):
        answer = Client().get(f"/sales/{card.slug}/opening.ics", headers={"accept-language": language})
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/calendar; charset=utf-8")
    assert f'filename="{card.slug}.ics"' in answer.headers["Content-Disposition"]
    (event,) = events(answer.content)
    assert (event.start, event.end) == (card.opens_at.replace(microsecond=0), event.start + timedelta(minutes=15))
    assert event["url"] == event.uid == f"https://shop.example/sales/{card.slug}/"
    assert word in event["summary"]
    assert event["summary"].startswith(HARD[:20])
    (alarm,) = event.walk("VALARM")
    assert timedelta(minutes=-5) == alarm.TRIGGER
    assert max(map(len, answer.content.split(b"\r\n"))) <= 75


@pytest.mark.parametrize(("language", "word"), [("en", "for those who may buy first"), ("zh-CN", "先对优先购买者开售")])
def test_a_sale_with_a_list_has_an_opening_for_each(card: SaleCard, language: str, word: str) -> None:
    Sale.objects.filter(pk=card.sale_id).update(public_at=card.opens_at + timedelta(minutes=30))
    text = Client().get(f"/sales/{card.slug}/opening.ics", headers={"accept-language": language}).content
    first, second = events(text)
    assert (word in first["summary"], word in second["summary"]) == (True, False)
    assert second.start - first.start == timedelta(minutes=30)
    assert second.uid == f"{first.uid}#public"


def test_a_moved_opening_is_the_same_appointment(card: SaleCard) -> None:
    def event() -> Calendar:
        return events(Client().get(f"/sales/{card.slug}/opening.ics").content)[0]

    before = event()
    Sale.objects.filter(pk=card.sale_id).update(opens_at=card.opens_at + timedelta(minutes=9))
    after = event()
    assert (after.uid, after.start - before.start) == (before.uid, timedelta(minutes=9))


def test_the_page_leads_to_it_before_the_opening_only(card: SaleCard, new_sku: Callable[[], str]) -> None:
    """The control is a sale that is open: no link, and no file."""
    running = make_sale(new_sku(), units=2)
    found = []
    for each in (card, running):
        link = f"/sales/{each.slug}/opening.ics"
        found.append((link in Client().get(f"/sales/{each.slug}/").content.decode(), Client().get(link).status_code))
    assert found == [(True, 200), (False, 404)]
    assert Client().get("/sales/no-such-sale/opening.ics").status_code == 404
    assert Client().post(f"/sales/{card.slug}/opening.ics").status_code == 405


def test_an_opening_lies_ahead_by_the_clock_that_opens(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, status in ((3000.0, 200), (3601.0, 404)):
        monkeypatch.setattr(clocks.LINE, "ahead_seconds", seconds)
        assert Client().get(f"/sales/{card.slug}/opening.ics").status_code == status
