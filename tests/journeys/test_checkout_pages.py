"""Every page and state of the buyer's half: axe finds nothing, nothing scrolls sideways at 320 px, the console is
silent (a violated policy would speak there), and a picture of each is kept under out/screens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from shop.models import Order, Sale
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.journeys.visits import PHONE, Visit, take_all, wait_until_open
from tests.support import road
from tests.support.shopkeeping import let_holds_end, rewrite

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
SALE_STATES = ("scheduled", "open", "many", "all_held", "sold_out", "paused", "closed")
TICKET_STATES = (
    "queued", "waitlisted", "beyond", "waiting-paused", "held", "paying", "declined", "paid", "sold_out", "expired",
    "cancelled", "left", "refused", "refunded",
)  # fmt: skip


@contextmanager
def standing_still(card: SaleCard) -> Iterator[None]:
    """Keep settlers away: who asks now, waits."""
    lock = road.held_lock(card.sku)
    try:
        yield
    finally:
        lock.release()


def show_sale(state: str, make: MakeSale, one: Visit) -> None:
    """Lead to the page of a sale in `state`."""
    terms = {
        "scheduled": {"opens_in_seconds": 600},
        "closed": {"opens_in_seconds": -600, "closes_in_seconds": -5},
        "many": {"limit": 4},
    }.get(state, {})
    card = make(units=1234 if state == "many" else 3 if state in {"open", "scheduled"} else 1, **terms)
    if state in {"all_held", "sold_out"}:
        take_all(card)
    if state == "sold_out":
        from tests.support.shopkeeping import pay_all
        from tests.support.waiting import wait_until

        wait_until(lambda: Order.objects.filter(sale_id=card.sale_id, state="held").exists())
        pay_all(card)
    if state == "paused":
        sale_control.pause(card.slug, actor="anna", reason="A fault at packing; we go on in ten minutes.")
    one.see_sale(card)
    words = {"many": "open"}.get(state, state)
    expect(one.page.locator("[data-sale]")).to_have_attribute("data-state", words)


@pytest.mark.parametrize("state", SALE_STATES)
def test_the_sale_page(state: str, open_sale: MakeSale, visit: OpenVisit) -> None:
    one = visit()
    show_sale(state, open_sale, one)
    one.check_page()
    one.picture(f"sale-{state}")


@contextmanager
def shown_ticket(state: str, make: MakeSale, one: Visit) -> Iterator[None]:
    """Lead to a ticket in `state`; while the block lasts it stays there."""
    if state == "queued":
        card = make(units=50)
        with standing_still(card):
            road.queue(card, *(f"crowd-{number:016d}" for number in range(37)))
            one.join(card)
            one.sees_state("queued")
            yield
        return
    card = make(units=1)
    if state in {"waitlisted", "beyond", "waiting-paused", "sold_out", "left"}:
        take_all(card)
        if state == "beyond":
            road.queue(card, "second-0000000000000000")
        one.wait_in_line(card)
    else:
        one.get_one(card)
    reach(state, card, one)
    yield


def reach(state: str, card: SaleCard, one: Visit) -> None:
    """Bring a waiting or held ticket on to `state`."""
    if state == "waiting-paused":
        sale_control.pause(card.slug, actor="anna", reason="A fault at packing; we go on in ten minutes.")
        one.sees("A fault at packing")
    elif state == "sold_out":
        sale_control.close(card.slug, actor="anna")
        one.sees_state("sold_out")
        one.reload()
        one.sees("The drop closed before one did. Nothing was charged. The shop closed it early.")
    elif state == "paying":
        one.pay("Pay, and never tell the shop")
    elif state == "declined":
        one.pay("Decline")
        one.sees("The payment was declined")
    elif state in {"paid", "refunded"}:
        one.pay()
        one.sees_state("paid")
        if state == "refunded":
            refund(one)
    elif state == "expired":
        let_holds_end(one.request_id)
        one.reload()
        one.sees_state("expired")
    elif state in {"cancelled", "left"}:
        one.page.locator(".acts summary").click()
        one.page.locator(".acts details button").click()
        one.sees_state("cancelled")
    elif state == "refused":
        rewrite(one.request_id, state="refused", reason="limit_reached", hold_expires_at=None)
        one.reload()
        one.sees_state("refused")


def refund(one: Visit) -> None:
    from shop.payments import refunds

    refunds.refund_order(one.request_id, actor="anna", reason="asked for")
    one.reload()
    one.sees_state("refunded")


@pytest.mark.parametrize("state", TICKET_STATES)
def test_the_ticket_page(state: str, open_sale: MakeSale, visit: OpenVisit) -> None:
    one = visit()
    with shown_ticket(state, open_sale, one):
        one.check_page()
        one.picture(f"ticket-{state}")


def test_the_other_pages(open_sale: MakeSale, visit: OpenVisit) -> None:
    one = visit()
    open_sale(units=3)
    shown = open_sale(units=30, opens_in_seconds=600)
    # The sales of other tests would make the page long; nobody needs them any more.
    Sale.objects.filter(pk__lt=shown.sale_id - 1).update(operator_state="closed")
    one.go("/")
    one.check_page()
    one.picture("list")
    one.go("/nothing")
    one.check_page()
    one.picture("not-found")
    one.get_one(open_sale(units=1))
    one.press("Pay €")
    one.page.wait_for_url("**/sandbox/pay/**")
    one.check_page()
    one.picture("sandbox")


def test_a_receipt_prints_on_one_page(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The control is the same page with a part of it made longer than a page."""
    one = visit()
    one.get_one(open_sale(units=1))
    one.pay()
    one.sees_state("paid")
    assert pages_printed(one) == 1
    one.page.emulate_media(media="print")
    for name in ("header form", "footer", ".confetti", ".keep"):
        expect(one.page.locator(name).first).to_be_hidden()
    expect(one.page.locator("[data-order-number]")).to_be_visible()
    one.picture("receipt-printed")
    one.page.evaluate("document.querySelector('.stub').style.height = '400mm'")
    assert pages_printed(one) > 1


def pages_printed(visit: Visit) -> int:
    """Return how many A4 pages the page that is shown takes."""
    return len(re.findall(rb"/Type */Page\b", visit.page.pdf(format="A4")))


@pytest.mark.parametrize(
    ("locale", "get", "words", "other"),
    [
        ("en-GB", "Get mine", "You have 1 already: in line, held or paid for.", "简体中文"),
        ("zh-CN", "我要一件", "您已有 1 件：排队中、已保留或已付款。", "English"),
    ],
)
def test_a_refused_press_says_why(
    locale: str, get: str, words: str, other: str, open_sale: MakeSale, visit: OpenVisit
) -> None:
    one, card = visit(locale=locale), open_sale(units=5, limit=2)
    one.get_one(card)
    one.see_sale(card)
    choice = one.page.locator("select[name=quantity]")
    choice.select_option("2")
    one.press(get)
    one.sees(words)
    expect(choice.locator("option")).to_have_text(["1"])
    one.check_page()
    one.picture(f"{locale[:2]}-sale-limit-reached")
    one.press(get)
    one.page.wait_for_url("**/requests/**")
    # In another tab of before, the button is still there for one who has all they may have.
    one.page.go_back()
    one.reload()
    one.press(get)
    one.sees(words.replace("1", "2"))
    expect(one.page.locator("form.buy")).to_have_count(0)
    one.check_page()
    one.press(other)
    expect(one.page.locator("form.buy button")).to_be_enabled()


def test_a_lost_connection_says_that_the_place_is_kept(open_sale: MakeSale, visit: OpenVisit) -> None:
    one = visit()
    with shown_ticket("waitlisted", open_sale, one):
        one.context.set_offline(True)
        one.sees("Connection lost — your place is kept.")
        one.picture("ticket-connection-lost")
        one.context.set_offline(False)


def test_chinese_by_the_browsers_wish(open_sale: MakeSale, visit: OpenVisit) -> None:
    one = visit(locale="zh-CN")
    card = open_sale(units=2, opens_in_seconds=3)
    one.see_sale(card)
    expect(one.page.locator("html")).to_have_attribute("lang", "zh-Hans")
    one.picture("zh-sale-scheduled")
    expect(one.page.get_by_role("button", name="我要一件")).to_be_enabled()
    wait_until_open(card)
    one.page.get_by_role("button", name="我要一件").click()
    one.page.wait_for_url("**/requests/**")
    one.sees_state("held")
    one.sees("它是您的了")
    one.check_page()
    one.picture("zh-ticket-held")
    one.page.get_by_role("button", name="支付").click()
    one.page.wait_for_url("**/sandbox/pay/**")
    one.page.get_by_role("button", name="支付").first.click()
    one.page.wait_for_url("**/requests/**")
    one.sees_state("paid")
    one.picture("zh-ticket-paid")
    shown = one.page.locator("body").inner_text()
    names = "Fairdrop|Paper kite|English|UTC|GMT|" + re.escape(one.request_id)
    assert re.findall(r"[A-Za-z]{3,}", re.sub(names, "", shown)) == []


def test_a_browser_that_does_not_say_what_was_pressed_buys_nothing_by_another_language(
    open_sale: MakeSale, visit: OpenVisit
) -> None:
    card, one = open_sale(units=1), visit()
    one.page.add_init_script("delete SubmitEvent.prototype.submitter")
    one.see_sale(card)
    one.press("简体中文")
    one.sees("我要一件")
    assert not Order.objects.filter(sale_id=card.sale_id).exists()
    one.press("我要一件")
    one.sees_state("held")


def test_the_language_is_chosen_by_hand_and_kept(open_sale: MakeSale, visit: OpenVisit) -> None:
    one, card = visit(), open_sale(units=2)
    one.see_sale(card)
    one.press("简体中文")
    expect(one.page.locator("html")).to_have_attribute("lang", "zh-Hans")
    assert one.page.url.partition("?")[0].endswith(f"/sales/{card.slug}/")  # with the quantity that was chosen
    one.go("/")
    expect(one.page.locator("html")).to_have_attribute("lang", "zh-Hans")
    one.press("English")
    expect(one.page.locator("html")).to_have_attribute("lang", "en")


def test_nothing_moves_for_who_wants_no_motion(open_sale: MakeSale, visit: OpenVisit) -> None:
    one = visit(reduced_motion="reduce", viewport=PHONE)
    one.get_one(open_sale(units=1))
    assert one.page.evaluate("document.getAnimations().length") == 0


def test_a_violated_policy_would_be_noticed(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The control: what the pages never do is blocked, and the console says so."""
    one = visit()
    one.see_sale(open_sale(units=1))
    one.page.evaluate("document.head.append(Object.assign(document.createElement('style'), { textContent: 'p {}' }))")
    one.wait_for_faults("Content Security Policy")
    one.faults.clear()
