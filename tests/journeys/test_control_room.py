"""Staff in a real browser while a sale runs: numbers move, a pause works, a stale form is refused, nothing is against
the page's own policy. Pictures of each page are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from inventory import redis
from inventory.line.admission import Code
from loadtest.bench.harness.timing import again_and_again
from shop.models import Order, StaffAct
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.journeys.visits import Visit
from tests.support import road
from tests.support.shopkeeping import pay_all
from tests.support.waiting import wait_until
from workers.reconciler.recorder import Recorder

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
# So many that no flood of a test sells them out, however long it lasts.
UNITS = 100_000
# Whether something is drawn to the left of a chart, where the figures of its axis belong.
HAS_FIGURES = """(canvas) => {
  const left = canvas.getContext("2d").getImageData(0, 0, 44 * devicePixelRatio, canvas.height);
  return left.data.some((value, at) => at % 4 === 3 && value > 0);
}"""


@contextmanager
def flood(card: SaleCard, *, crowd: int = 8) -> Iterator[None]:
    """Let new buyers ask, some at a time, until the block ends; the shop's own settler decides them."""
    numbers = count()

    def ask() -> None:
        asks = [road.ask(card, f"flood-{next(numbers):016d}") for _ in range(crowd)]
        road.admit(card, *asks)

    with again_and_again(ask, every_seconds=0.05):
        yield


def room(card: SaleCard) -> str:
    return f"/admin/shop/sale/{card.sale_id}/room/"


def number(staff_member: Visit, name: str) -> int:
    text = staff_member.page.locator(".room-numbers div", has=staff_member.page.get_by_text(name, exact=True))
    return int(text.locator("dd").inner_text())


def changes(look: Callable[[], Any], what: str) -> None:
    """Wait until what is seen differs from what was seen first."""
    first = look()
    wait_until(lambda: look() != first, what=f"{what} moves")


def live_calls(staff_member: Visit) -> list[str]:
    """Return the list to which every live call of the page is added from now on."""
    calls: list[str] = []
    staff_member.page.on("request", lambda each: calls.append(each.url) if "/live/" in each.url else None)
    return calls


def test_the_room_lives_while_a_flood_runs(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, manager, worker = open_sale(units=UNITS), staff(), Recorder(redis.connect())
    manager.go(room(card))
    table = manager.page.locator("[data-part=table] tbody tr")
    with flood(card):
        changes(lambda: number(manager, "held"), "held")
        changes(lambda: number(manager, "held"), "held")
        # So many points that the charts of the pictures show something.
        wait_until(lambda: worker.work_once() >= 0 and table.count() >= 4, what="there are points")
        expect(manager.page.locator("#plot-units canvas")).to_be_visible()
        expect(manager.page.locator("#plot-latency canvas")).to_be_visible()
        manager.sees("The sale is open. Every invariant holds.")
        expect(manager.page.locator("[data-part=workers]")).to_contain_text("settler")
        expect(manager.page.locator("[data-part=workers]")).to_contain_text("expirer")
    chart = manager.page.locator("#plot-units canvas")
    wait_until(lambda: chart.evaluate(HAS_FIGURES), what="the axis has figures")
    manager.check_page(preload=False)
    manager.picture("room")
    manager.page.get_by_text("The same as a table").click()
    expect(table.first).to_be_visible()
    expect(table.first.locator("th")).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))


def test_a_pause_from_the_room_stops_the_line_and_a_resume_goes_on(
    open_sale: MakeSale, staff: Callable[..., Visit]
) -> None:
    card, manager = open_sale(units=3), staff()
    manager.go(room(card))
    manager.page.get_by_role("link", name="Pause…").click()
    manager.check_page(preload=False)
    manager.picture("room-act")
    manager.press("Pause")  # without a reason the browser or the form refuses
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()
    manager.page.get_by_label("Reason").fill("a fault at packing")
    manager.press("Pause")
    manager.sees("The sale is paused.")
    manager.sees("Paused: a fault at packing")
    assert road.admit(card, road.ask(card, "somebody"))[0].code == Code.PAUSED
    act = StaffAct.objects.get(sale_id=card.sale_id)
    assert (act.act, act.reason) == ("pause", "a fault at packing")
    manager.page.get_by_role("link", name="Resume…").click()
    manager.page.get_by_label("Reason").fill("it is mended")
    manager.press("Resume")
    manager.sees("The sale is open.")
    manager.check_page(preload=False)


def test_a_stale_form_is_refused_before_ones_eyes(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, manager = open_sale(units=3), staff()
    manager.go(f"{room(card)}restock/")
    sale_control.pause(card.slug, actor="a colleague", reason="a fault at packing")
    manager.page.get_by_label("Units").fill("5")
    manager.page.get_by_label("Reason").fill("found in the back")
    manager.press("Restock")
    manager.sees("a colleague did “pause” at")
    manager.check_page(preload=False)
    assert StaffAct.objects.filter(sale_id=card.sale_id).count() == 1
    manager.press("Restock")  # read, and confirmed once more
    manager.sees("Restock: done.")
    assert StaffAct.objects.filter(sale_id=card.sale_id).count() == 2


def test_a_viewer_sees_all_and_has_no_button(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, viewer = open_sale(units=3), staff("viewer")
    viewer.go(room(card))
    viewer.sees("The sale is open.")
    expect(viewer.page.locator("[data-part=buttons] a")).to_have_count(0)
    viewer.check_page(preload=False)


def test_an_operator_pauses_and_resumes_and_refunds_nobody(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, operator, manager = open_sale(units=3), staff("operator"), staff()
    (name,) = road.queue(card, "somebody")
    order = wait_until(lambda: Order.objects.filter(request_id=name, state="held").first(), what="it is held")
    pay_all(card)
    operator.go(room(card))
    buttons = operator.page.locator("[data-part=buttons] a")
    expect(buttons).to_have_text(["Pause…", "Reconcile…"])
    for press, reason, seen in (("Pause", "a fault at packing", "paused"), ("Resume", "it is mended", "open")):
        operator.page.get_by_role("link", name=f"{press}…").click()
        operator.page.get_by_label("Reason").fill(reason)
        operator.press(press)
        operator.sees(f"The sale is {seen}.")
    acts = StaffAct.objects.filter(sale_id=card.sale_id).order_by("id")
    assert [(each.act, each.actor.split("-")[0]) for each in acts] == [("pause", "operator"), ("resume", "operator")]
    refund = f"/admin/shop/order/{order.pk}/refund/"
    for member, links in ((operator, 0), (manager, 1)):  # the manager is the control
        member.go(f"/admin/shop/order/{order.pk}/change/")
        member.sees("held → paid")
        expect(member.page.get_by_role("link", name="Refund…")).to_have_count(links)
        answer = member.page.goto(member.root + refund)
        assert answer is not None
        assert answer.status == (200 if links else 403)


def test_a_room_rests_while_nobody_looks(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, manager = open_sale(units=3), staff()
    calls = live_calls(manager)
    manager.page.clock.install()
    manager.go(room(card))
    wait_until(lambda: manager.page.title() and len(calls) >= 2, what="it asks")
    hide = "hidden => { Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    manager.page.evaluate(hide, True)
    manager.sees("Rests while nobody looks.")
    asked = len(calls)
    for _ in range(5):  # five times as long as it waits between two calls, and each time a moment for the call itself
        manager.page.clock.run_for(2_000)
        manager.page.wait_for_timeout(200)
    assert len(calls) <= asked + 1  # one may have been under way
    asked = len(calls)
    manager.page.evaluate(hide, False)
    wait_until(lambda: manager.page.title() and len(calls) >= asked + 2, what="it asks again")


def test_the_live_stock_moves_and_filters(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, viewer = open_sale(units=UNITS), staff("viewer")
    viewer.go("/admin/")
    viewer.page.locator("#content").get_by_role("link", name="Live stock").click()
    viewer.page.get_by_label("SKU", exact=True).fill(card.sku)
    viewer.press("Search")
    cells = viewer.page.locator("[data-part=rows] tr").first
    with flood(card):
        changes(lambda: cells.locator("td").nth(3).inner_text(), "held")
    viewer.check_page(preload=False)
    viewer.page.get_by_role("link", name="drifting", exact=True).click()
    viewer.sees("Nothing here.")
    viewer.page.get_by_role("link", name="running", exact=True).click()
    expect(cells).to_contain_text(card.sku)
    viewer.go("/admin/inventory/stock/live/")
    expect(viewer.page.get_by_text("Live.", exact=True)).to_be_visible()
    viewer.picture("stock")
    with viewer.page.expect_download() as download:
        viewer.page.get_by_role("link", name="CSV").click()
    assert re.fullmatch(r"stock-\w+\.csv", download.value.suggested_filename)


def test_an_order_is_found_and_cancelled(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, manager = open_sale(units=3), staff()
    (name,) = road.queue(card, "somebody")
    order = wait_until(lambda: Order.objects.filter(request_id=name).first(), what="it is decided")
    manager.go(f"/admin/shop/order/{order.pk}/change/")
    manager.sees("queued → held")
    manager.check_page(preload=False)
    manager.picture("order")
    manager.page.get_by_role("link", name="Cancel…").click()
    manager.page.get_by_label("Reason").fill("asked for by phone")
    manager.check_page(preload=False)
    manager.press("Cancel")
    manager.sees("held → cancelled")
    manager.go(f"/admin/inventory/stockmovement/?q={card.sku}")
    manager.sees("free after it")
    manager.picture("ledger")


def test_without_script_the_pages_say_the_same(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, manager = open_sale(units=3), staff(java_script_enabled=False)
    said = manager.page.get_by_text("The sale is open. Every invariant holds.")
    wait_until(lambda: manager.go(room(card)) or said.count(), what="every store has answered in time")
    assert number(manager, "free") == 3
    manager.page.get_by_role("link", name="every two seconds").click()
    road.queue(card, "somebody")
    wait_until(lambda: number(manager, "held") == 1, what="it loads itself again")
    manager.page.get_by_role("link", name="Stop").click()
    manager.page.wait_for_url(lambda url: "watch" not in url)
    manager.go(f"/admin/inventory/stock/live/?q={card.sku}")
    expect(manager.page.locator("[data-part=rows]")).to_contain_text(card.sku)


@pytest.mark.usefixtures("shop_database")
def test_a_sale_is_made_from_nothing_and_sells(
    visit: OpenVisit, staff: Callable[..., Visit], new_sku: Callable[[], str]
) -> None:
    sku, manager = new_sku(), staff()
    manager.go("/admin/shop/sale/")
    manager.page.get_by_role("link", name="Add sale").first.click()
    page, today = manager.page, timezone.now().date()
    page.locator("[name=title]").fill("Tea set")
    page.locator("[name=title]").press("Tab")
    expect(page.get_by_label("Slug")).to_have_value("tea-set")
    fields = {
        "slug": f"{sku}-drop", "sku": sku, "units": "12", "picture": "shop/products/teapot.svg", "price": "49",
        "opens_at_0": str(today), "opens_at_1": "00:00", "closes_at_0": str(today + timedelta(days=2)),
        "closes_at_1": "00:00", "currency": "zz",
    }  # fmt: skip
    for name, text in fields.items():
        page.locator(f"[name={name}]").fill(text)
    manager.press("Save and continue editing")
    manager.sees("ZZ is not a currency of ISO 4217.")
    manager.check_page(preload=False)
    manager.picture("sale-form")
    page.locator("[name=currency]").fill("EUR")
    manager.press("Save and continue editing")
    manager.sees("was added successfully")
    buyer = visit()
    wait_until(lambda: sku in buyer.page.goto(f"{buyer.root}/").text(), what="the sale is shown")
    buyer.get_one(catalogue.find_sale(f"{sku}-drop"))
    buyer.pay()
    buyer.sees_state("paid")
    manager.go(f"/admin/shop/sale/?q={sku}")
    units = [page.locator(f"td.field-{name}").inner_text() for name in ("free", "held", "sold")]
    assert units == ["11", "0", "1"]
    manager.check_page(preload=False)
    manager.picture("sale-list")
