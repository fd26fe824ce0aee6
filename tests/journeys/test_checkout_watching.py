"""Watching in a real browser: the line moves, a hold lapses, staff pause and restock, the network goes, the clock is
wrong. Nobody touches the page: what is true appears by itself, and focus moves for one thing only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Browser, Request, Response, Route, expect

from inventory.states import PauseReason
from shop.models import Order
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.journeys.visits import HIDE, PATIENCE_MS, Visit, take_all, wait_until_open
from tests.support import road
from tests.support.http_calls import Caller
from tests.support.shopkeeping import let_holds_end
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
# An open sale looks again after at most so long (static/shop/sale.js): five seconds and a fifth. Its page's clock is
# turned on by so much, instead of waiting.
SALE_LOOKS_MS = 6_100
# Notes what the page asks of the browser's notifications and how many tones it plays; all of it happens as well.
NOTE_ALERTS = """
  window.shown = []; window.asked = 0; window.tones = 0;
  const [Real, start] = [Notification, OscillatorNode.prototype.start];
  window.Notification = class extends Real {
    constructor(text, options) { super(text, options); window.shown.push([text, options.body]); }
    static requestPermission() { window.asked += 1; return Real.requestPermission(); }
  };
  OscillatorNode.prototype.start = function (at) { window.tones += 1; return start.call(this, at); };
"""
# A page that is connected again asks at once.
LOOK = "dispatchEvent(new Event('online'))"
# A hidden tab without a stream asks every four seconds (static/shop/ticket.js): so soon it has heard.
HIDDEN_HEARS_MS = 5_000


@pytest.fixture
def chromium(whole_chromium: Browser) -> Browser:
    """Notifications are asked for and shown in this browser only."""
    return whole_chromium


def crowd(card: SaleCard, people: int) -> None:
    """Let people without a browser ask, who are decided before anybody that comes now."""
    road.queue(card, *(f"crowd-{number:016d}" for number in range(people)))


def focused(visit: Visit) -> str:
    return visit.page.evaluate("document.activeElement.tagName + ':' + document.activeElement.textContent.trim()")


def asks_of(visit: Visit) -> list[str]:
    """Return the list to which every ask about a ticket is added; the log is asked for its proof by itself."""
    asked: list[str] = []

    def note(request: Request) -> None:
        if "/requests/" in request.url and not request.url.endswith("/proof"):
            asked.append(request.url)

    visit.context.on("request", note)
    return asked


def announced(visit: Visit) -> str:
    return visit.page.locator("[data-announce]").inner_text()


def test_a_hold_lapses_and_the_next_in_line_gets_it_while_watching(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, first, second = open_sale(units=1), visit(), visit()
    first.get_one(card)
    second.wait_in_line(card)
    assert focused(second).startswith("BODY")
    let_holds_end(first.request_id)
    second.sees_state("held")
    # Focus moved to the news, and a voice says it.
    assert focused(second) == "H1:It is yours"
    assert announced(second) == "It is yours"
    first.reload()
    first.sees_state("expired")
    first.sees("The hold ran out")


def test_the_own_hold_lapses_before_ones_eyes(open_sale: MakeSale, visit: OpenVisit) -> None:
    for seconds in (12, 90):  # the second for a machine on which the first is over when the page is there
        buyer, loaded = visit(), list[str]()
        buyer.page.on("requestfinished", lambda request, into=loaded: into.append(request.url))
        buyer.join(open_sale(units=1, hold_seconds=seconds))
        buyer.sees_state("held", "expired")
        # A poll gets no answer until the page has loaded itself, which only the end of its own timer lets it do.
        buyer.context.route(f"**/api/v1/requests/{buyer.request_id}", lambda route: route.abort())
        wait_until(lambda each=buyer: each.page.title() and not each.asks, what="every ask is answered")
        loaded.clear()
        ends = Order.objects.get(request_id=buyer.request_id).hold_expires_at
        if ends - datetime.now(ends.tzinfo) > timedelta(seconds=2):  # a page's clock may be a little ahead
            break
    else:
        pytest.fail("the machine was too slow to see a hold")
    wait_until(lambda: buyer.page.title() and buyer.page.url in loaded, what="the page loads itself")
    # The expirer may be later than that on a machine that stands still: then a poll tells it.
    buyer.context.unroute(f"**/api/v1/requests/{buyer.request_id}")
    buyer.sees_state("expired")
    buyer.sees("Nothing was charged.")
    assert focused(buyer).startswith("BODY")
    expect(buyer.page.get_by_role("link", name="Ask again")).to_be_visible()


def test_staff_pause_and_resume_while_buyers_watch(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, holder, waiter, looker = open_sale(units=1), visit(), visit(), visit()
    looker.page.clock.install()
    holder.get_one(card)
    waiter.wait_in_line(card)
    looker.see_sale(card)
    sale_control.pause(card.slug, actor="anna", reason="A fault at packing.")
    waiter.sees("A fault at packing.")
    looker.page.clock.run_for(SALE_LOOKS_MS)
    looker.sees("A fault at packing.")
    expect(looker.page.get_by_role("button", name="Join the line")).to_have_count(0)
    assert "A fault" not in holder.page.content()
    sale_control.resume(card.slug, actor="anna")
    expect(waiter.page.get_by_text("A fault at packing.")).to_be_hidden()
    expect(waiter.page).to_have_title("1 · Paper kite · Fairdrop")
    looker.page.clock.run_for(SALE_LOOKS_MS)
    expect(looker.page.get_by_role("button", name="Join the line")).to_be_visible()


def test_a_reason_of_the_shop_itself_stays_in_the_language_of_the_page(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, waiter = open_sale(units=1), visit(locale="zh-CN")
    take_all(card)
    waiter.wait_in_line(card)
    sale_control.pause(card.slug, actor="anna", reason=PauseReason.AFTER_RESTORE)
    waiter.sees("我们刚从备份恢复了账目")
    assert PauseReason.AFTER_RESTORE not in waiter.page.locator("[data-reason]").inner_text()


def test_a_restock_wakes_the_waitlist(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, waiter = open_sale(units=1), visit()
    take_all(card)
    waiter.wait_in_line(card)
    sale_control.restock(card.slug, units=1, actor="anna", reason="a second box")
    waiter.sees_state("held")


def test_more_people_ahead_than_units_is_said_at_once(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    crowd(card, 2)
    buyer.join(card)
    buyer.sees("More people are ahead of you than units can come free.")


def test_offline_and_back(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, holder, waiter = open_sale(units=1), visit(), visit()
    holder.get_one(card)
    waiter.wait_in_line(card)
    waiter.context.set_offline(True)
    waiter.sees("Connection lost — your place is kept.")
    holder.page.locator(".acts summary").click()
    holder.press("Give it back for good")
    holder.sees_state("cancelled")
    waiter.sees_state("waitlisted")
    waiter.context.set_offline(False)
    waiter.sees_state("held")
    expect(waiter.page.locator("[data-lost]")).to_be_hidden()


def test_a_browser_that_lost_its_cookies_says_so_and_stops_asking(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    buyer.page.clock.install()
    take_all(card)
    buyer.wait_in_line(card)
    buyer.stop_clock()
    cookies = buyer.context.cookies()
    buyer.context.clear_cookies()
    buyer.page.evaluate(LOOK)
    buyer.page.clock.run_for(10)
    buyer.sees("This ticket does not belong to this browser.")
    asked = asks_of(buyer)
    buyer.page.clock.run_for(30_000)
    assert asked == []  # for a minute: a line that lost its places may get this one back
    buyer.page.clock.run_for(35_000)
    wait_until(lambda: buyer.page.title() is not None and asked, what="it is asked for again")
    buyer.page.clock.resume()
    buyer.context.add_cookies(cookies)
    buyer.page.evaluate(LOOK)
    expect(buyer.page.locator("[data-lost]")).to_be_hidden()
    buyer.page.route("**/api/v1/requests/*", lambda route: route.abort())
    buyer.page.evaluate(LOOK)
    buyer.sees("Connection lost — your place is kept.")


@pytest.mark.parametrize("status", [403, 404])
def test_a_refusal_that_is_not_the_shops_is_a_lost_connection(
    open_sale: MakeSale, visit: OpenVisit, status: int
) -> None:
    card, buyer = open_sale(units=1), visit()
    take_all(card)
    buyer.wait_in_line(card)
    login = "<!doctype html><title>Log in to this network</title>"
    buyer.page.route("**/requests/**", lambda route: route.fulfill(status=status, content_type="text/html", body=login))
    buyer.page.evaluate(LOOK)
    buyer.sees("Connection lost — your place is kept.")
    buyer.page.unroute("**/requests/**")
    expect(buyer.page.locator("[data-lost]")).to_be_hidden(timeout=PATIENCE_MS)


@pytest.mark.parametrize(
    ("locale", "words"),
    [
        ("en-GB", ("No unit came free for you", "The shop closed it early.")),
        ("zh-CN", ("没有为您空出的商品", "商店提前结束了发售。")),
    ],
)
def test_a_ticket_that_waited_until_the_close_claims_no_reason_before_it_is_known(
    locale: str, words: tuple[str, str], open_sale: MakeSale, visit: OpenVisit
) -> None:
    """The control of the words is a line that is sold out while its sale is open, where two buyers want one unit."""
    card, waiter = open_sale(units=1), visit(locale=locale)
    take_all(card)
    waiter.wait_in_line(card)
    waiter.context.route(waiter.page.url, lambda route: route.abort())
    sale_control.close(card.slug, actor="anna")
    waiter.sees_state("sold_out")
    shown = waiter.page.locator("[data-ticket]").inner_text()
    assert words[0] in shown
    assert re.search("sold out|售罄|closed", shown, re.IGNORECASE) is None
    waiter.context.unroute(waiter.page.url)
    waiter.sees(words[1])
    expect(waiter.page.locator("[data-announce]")).to_have_text(waiter.page.locator("h1").inner_text())


def test_polling_where_streams_do_not_come_through(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, waiter = open_sale(units=1), visit()
    waiter.context.route("**/events", lambda route: route.abort())
    held = take_all(card)
    waiter.wait_in_line(card)
    let_holds_end(held)
    waiter.sees_state("held")


def test_streams_alone_tell_it_where_nobody_polls(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The other half of the control above: whatever the page asks, it is told that the person waits."""
    card, waiter = open_sale(units=1), visit()
    held = take_all(card)
    waiter.wait_in_line(card)
    address = f"{waiter.root}/api/v1/requests/{waiter.request_id}"
    status = waiter.context.request.get(address).text()
    assert json.loads(status)["state"] == "waitlisted"
    waiter.context.route(address, lambda route: route.fulfill(body=status, content_type="application/json"))
    with waiter.page.expect_response(lambda response: response.url.endswith("/events"), timeout=PATIENCE_MS):
        waiter.reload()
    let_holds_end(held)
    waiter.sees_state("held")


def watch_hidden(visit: Visit, card: SaleCard) -> list[str]:
    """Let somebody wait in a tab whose clock stands still and that is then hidden; return what it asks from then on."""
    visit.page.clock.install()
    visit.wait_in_line(card)
    visit.stop_clock()
    # Its next ask is counted from the last one, so that is now, and by the clock that stands still.
    with visit.page.expect_response(lambda response: response.url.endswith(visit.request_id)):
        visit.page.evaluate("dispatchEvent(new Event('online'))")
        visit.page.clock.run_for(10)

    def is_calm() -> bool:
        """Every ask is answered, the last one well: after a failed one the page has no stream until its next ask."""
        is_lost = visit.page.locator("[data-lost]").is_visible()
        visit.page.clock.run_for(1_000 if is_lost and not visit.asks else 0)
        return not is_lost and not visit.asks

    wait_until(is_calm, what="every ask is answered")
    visit.page.evaluate(HIDE, True)
    return asks_of(visit)


def icon(visit: Visit) -> str | None:
    return visit.page.locator("link[rel=icon]").get_attribute("href")


def wait_until_breaks(visit: Visit, broken: list[str]) -> None:
    """Wait until the page has surely heard of a stream that failed: of the one before the last."""
    before = len(broken)
    wait_until(lambda: visit.page.title() and len(broken) >= before + 2, what="streams go on failing")


def wait_until_held(visit: Visit) -> None:
    """Wait until the books say so, whatever the page shows."""
    wait_until(
        lambda: Order.objects.filter(request_id=visit.request_id, state="held").exists(),
        what="it is held",
    )


def test_a_hidden_tab_hears_of_its_hold_by_the_stream_and_marks_itself(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, waiter = open_sale(units=1), visit()
    held = take_all(card)
    with waiter.page.expect_response(lambda response: response.url.endswith("/events"), timeout=PATIENCE_MS):
        asked = watch_hidden(waiter, card)
    plain = icon(waiter)
    let_holds_end(held)
    waiter.sees_state("held")
    # No timer of the page has run: only the stream can have told it.
    assert [url for url in asked if "/api/" in url] == []
    assert announced(waiter) == "It is yours"
    expect(waiter.page).to_have_title(re.compile(r"^Yours: pay within ([89]:\d\d|10:00) · Paper kite"))
    assert (icon(waiter), plain) == ("/static/shop/favicon-news.svg", "/static/shop/favicon.svg")
    waiter.page.clock.run_for(1_100)  # from here on the text is of the page's own clock, and no longer the shop's
    before = waiter.page.title()
    waiter.page.clock.run_for(5_000)
    assert waiter.page.title() != before, "the title counts down"
    waiter.page.clock.resume()
    waiter.come_back()
    assert str(icon(waiter)).endswith(str(plain))
    waiter.pay()
    waiter.sees_state("paid")
    expect(waiter.page).to_have_title(re.compile("^Yours · Paper kite"))


LEFT = r"([89]:\d\d|10:00)"
# By language: the button before and after it was pressed, and the notification.
ALERTS = {
    "en-GB": ("Alert me when it is mine", "Sound and notification are on: turn off", f"It is yours: {LEFT} left"),
    "zh-CN": ("轮到我时提醒我", "声音和通知提醒已开启：关闭", f"它是您的了：还剩 {LEFT}"),
}


def wait_for_alert(open_visit: OpenVisit, card: SaleCard, *, locale: str, permissions: tuple[str, ...] = ()) -> Visit:
    """Let somebody wait who has not pressed for an alert."""
    opened = open_visit(locale=locale, permissions=[*permissions])
    opened.context.add_init_script(NOTE_ALERTS)
    opened.wait_in_line(card)
    expect(opened.page.get_by_role("button", name=ALERTS[locale][0])).to_be_visible()
    return opened


def alerts_of(visit: Visit) -> tuple[list[list[str]], int]:
    """Return the notifications that were shown, each with its second line, and how many tones were played."""
    return visit.page.evaluate("shown"), visit.page.evaluate("tones")


@pytest.mark.parametrize("locale", ALERTS)
def test_a_hidden_tab_rings_and_notifies_those_who_pressed_for_it(
    locale: str, open_sale: MakeSale, visit: OpenVisit
) -> None:
    """The control is somebody who hides the tab and never pressed; a reload changes nothing."""
    card = open_sale(units=1)
    take_all(card)
    waiter, silent = (wait_for_alert(visit, card, locale=locale, permissions=("notifications",)) for _ in range(2))
    off, on, words = ALERTS[locale]
    waiter.press(off)
    expect(waiter.page.get_by_role("button", name=on)).to_be_visible()
    assert (waiter.page.evaluate("asked"), *alerts_of(waiter)) == (1, [], 2), "asked for once, and played once"
    waiter.reload()
    expect(waiter.page.get_by_role("button", name=on)).to_be_visible()
    for each in (waiter, silent):
        each.page.evaluate(HIDE, True)
    sale_control.restock(card.slug, units=2, actor="anna", reason="a second box")
    for each in (waiter, silent):
        each.sees_state("held")
    ((text, goods),), tones = alerts_of(waiter)
    assert re.fullmatch(words, text)
    assert goods == "Paper kite"
    assert tones == 2
    assert (silent.page.evaluate("asked"), *alerts_of(silent)) == (0, [], 0)


def test_no_alert_in_a_tab_that_is_seen_or_after_it_was_turned_off(open_sale: MakeSale, visit: OpenVisit) -> None:
    """Where the browser allows no notifications, the button promises a sound only."""
    card = open_sale(units=1)
    take_all(card)
    seen, turned_off = (wait_for_alert(visit, card, locale="en-GB") for _ in range(2))
    for each in (seen, turned_off):
        each.press(ALERTS["en-GB"][0])
        expect(each.page.get_by_role("button", name="Sound is on: turn off")).to_be_visible()
    turned_off.press("Sound is on: turn off")
    expect(turned_off.page.get_by_role("button", name=ALERTS["en-GB"][0])).to_be_visible()
    turned_off.page.evaluate(HIDE, True)
    sale_control.restock(card.slug, units=2, actor="anna", reason="a second box")
    for each in (seen, turned_off):
        each.sees_state("held")
        assert alerts_of(each) == ([], 2), "only the sound of the press"


def test_a_stream_that_is_refused_is_opened_again_less_and_less_often(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, waiter = open_sale(units=1), visit()
    take_all(card)
    waiter.page.clock.install()
    waiter.context.route("**/events", lambda route: route.fulfill(status=503))
    asked, ended, opened = asks_of(waiter), list[str](), list[str]()
    for event in ("requestfinished", "requestfailed"):
        waiter.context.on(event, lambda request: ended.append(request.url))
    waiter.context.on("response", lambda response: opened.append(response.url) if response.ok else None)
    waiter.wait_in_line(card)
    waiter.stop_clock()

    def seen(urls: list[str], end: str) -> int:
        return len([url for url in urls if url.endswith(end)])

    def go_on() -> None:
        """Let the page's time pass, but not while it waits for an answer."""
        is_waiting = seen(asked, waiter.request_id) > seen(ended, waiter.request_id)
        waiter.page.clock.run_for(0 if is_waiting else 500)

    wait_until(lambda: go_on() or seen(asked, waiter.request_id) >= 16, what="it asks without a stream")
    assert seen(asked, "/events") <= 8, "after two seconds, four, eight, sixteen, and not after each ask"
    waiter.context.unroute("**/events")
    wait_until(lambda: go_on() or seen(opened, "/events"), what="it has a stream again")


def test_a_visible_tab_keeps_its_icon(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, waiter = open_sale(units=1), visit()
    held = take_all(card)
    waiter.wait_in_line(card)
    let_holds_end(held)
    waiter.sees_state("held")
    assert icon(waiter) == "/static/shop/favicon.svg"


def test_a_hidden_tab_without_a_stream_hears_within_five_seconds(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The control of the test above, and the pace of what is left; a stream that fails puts no ask off."""
    card, waiter = open_sale(units=1), visit()
    broken: list[str] = []
    waiter.context.on("requestfailed", lambda request: broken.append(request.url) if "/events" in request.url else None)
    waiter.context.route("**/events", lambda route: route.abort())
    held = take_all(card)
    asked = watch_hidden(waiter, card)
    let_holds_end(held)
    wait_until_held(waiter)
    wait_until_breaks(waiter, broken)
    waiter.sees_state("waitlisted")
    assert [url for url in asked if not url.endswith("/events")] == []
    waiter.page.clock.run_for(HIDDEN_HEARS_MS // 2)
    wait_until_breaks(waiter, broken)
    waiter.page.clock.run_for(HIDDEN_HEARS_MS // 2)
    waiter.sees_state("held")
    polls = [url for url in asked if url.endswith(f"/api/v1/requests/{waiter.request_id}")]
    assert len(polls) in (1, 2), "every four seconds"


def test_the_last_minute_of_a_hold_is_announced(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1, hold_seconds=290), visit()
    buyer.page.clock.install()
    buyer.get_one(card)
    buyer.stop_clock()
    left = buyer.page.locator(".timer[data-until]")

    def last_minute_is_near() -> bool:
        """Whatever the page's clock says now: it may still be set by the shop's."""
        minutes, seconds = map(int, left.inner_text().split(":"))
        spare = 60 * minutes + seconds - 62
        # By half of it: when the clock is set meanwhile, the page does not run past the moment.
        buyer.page.clock.run_for(1_000 * ((spare + 1) // 2) if spare > 0 else 0)
        return spare <= 0

    wait_until(last_minute_is_near, what="the last minute is near")
    assert left.inner_text() in ("1:02", "1:01"), "the machine was too slow to see the last minute begin"
    assert "Held for you" not in announced(buyer)
    buyer.page.clock.run_for(4_000)
    assert announced(buyer) == "Held for you for another 1:00"


def test_a_hidden_tab_with_a_final_ticket_asks_nothing(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    buyer.page.clock.install()
    buyer.get_one(card)
    let_holds_end(buyer.request_id)
    # What the page counted down to is not final before the shop has said so.
    wait_until(Order.objects.filter(request_id=buyer.request_id, state="expired").exists, what="the hold has ended")
    buyer.reload()
    buyer.sees_state("expired")
    asked = asks_of(buyer)
    buyer.page.evaluate(HIDE, True)
    buyer.page.clock.run_for(60_000)
    assert asked == []


def test_a_place_that_the_server_lost_comes_back_by_the_kept_ticket(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5), visit()
    lock = road.held_lock(card.sku)  # no settler works this SKU while we hold it: the line stands still
    try:
        buyer.join(card)
        buyer.sees_state("queued")
        kept = buyer.page.evaluate("localStorage.getItem('fairdrop:ticket:' + location.pathname.split('/')[2])")
        assert kept.startswith("fdt2.")

        def is_restored(response: Response) -> bool:
            """The shop may answer 503 until it has told Redis of the sale again."""
            return response.url.endswith("/tickets/restore") and response.status in (200, 202)

        with buyer.page.expect_response(is_restored):
            road.forget(card)
    finally:
        lock.release()
    buyer.sees_state("held")


@pytest.mark.parametrize("wrong_by", [timedelta(hours=1), timedelta(hours=-1)], ids=["fast", "slow"])
def test_the_sale_opens_by_itself_whatever_the_device_believes(
    open_sale: MakeSale, visit: OpenVisit, wrong_by: timedelta
) -> None:
    buyer = visit()
    skew = int(wrong_by.total_seconds() * 1000)
    buyer.context.add_init_script(
        f"const now = Date.now; Date.now = () => now() + {skew};"
        f"const Old = Date; Date = class extends Old {{ constructor(...given) {{ given.length ? super(...given) :"
        f" super(now() + {skew}); }} }};"
    )
    for seconds in (20, 90):  # the second for a machine on which the first is nearly over when the page is there
        card = open_sale(units=5, opens_in_seconds=seconds)
        buyer.see_sale(card)
        if card.opens_at - datetime.now(card.opens_at.tzinfo) > timedelta(seconds=12):
            break
    button = buyer.page.get_by_role("button")
    expect(button.filter(has_text="Not open yet")).to_be_disabled()
    timer = buyer.page.get_by_role("timer")
    expect(timer).to_have_text(re.compile(r"^[01]:\d\d$"))
    expect(button.filter(has_text="Get mine")).to_be_enabled()
    early = card.opens_at - datetime.now(card.opens_at.tzinfo)
    assert early <= timedelta(milliseconds=300), "the button opened before its moment"
    expect(buyer.page.locator("[data-announce]")).to_have_text("It is open. Press the button now.")
    wait_until_open(card)
    buyer.press("Get mine")
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("held")


def test_stock_on_the_page_follows_the_sale(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, looker, buyer = open_sale(units=2), visit(), visit()
    looker.page.clock.install()
    looker.see_sale(card)
    looker.sees("2 left")
    buyer.get_one(card)
    looker.page.clock.run_for(SALE_LOOKS_MS)
    looker.sees("1 left")


def test_place_bar_and_estimate_move(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    card, buyer = open_sale(units=50), visit()
    lock = road.held_lock(card.sku)
    try:
        crowd(card, 4)
        buyer.join(card)
        buyer.sees_state("queued")
        expect(buyer.page.locator("[data-place]")).to_have_text("5")
        buyer.sees("not known yet")

        def answer(route: Route) -> None:
            status = whole_shop.get(
                f"/api/v1/requests/{buyer.request_id}",
                headers={"Cookie": "; ".join(f"{c['name']}={c['value']}" for c in buyer.context.cookies())},
            ).json()
            status |= {"position": 2, "ahead": 1, "eta_seconds": 100, "eta_range_seconds": [70, 161]}
            route.fulfill(body=json.dumps(status), content_type="application/json")

        buyer.context.route("**/events", lambda route: route.abort())
        buyer.context.route(f"**/api/v1/requests/{buyer.request_id}", answer)
        buyer.reload()
        buyer.sees("70 s to 3 min")
        expect(buyer.page.locator("[data-place]")).to_have_text("2")
        assert buyer.page.locator("[data-way]").evaluate("bar => bar.value / bar.max") == pytest.approx(3 / 4)
        assert announced(buyer) == "Your place in line: 2"
    finally:
        lock.release()
