"""Every page of the admin, with something in it: axe finds nothing, in the light and in the dark, the page fits a
narrow phone, and its console is silent. Pictures of the ones that staff use most are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from secrets import token_hex
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.urls import reverse
from playwright.sync_api import expect

from shop.models import Order, Product, TermsTemplate
from shop.sales.catalogue import SaleCard
from shop.staff.actions import ROOM_ACTS
from shop.staff.orders import ORDER_ACTS
from tests.journeys.visits import DESKTOP, PHONE, Visit

MakeSale = Callable[..., SaleCard]
PARTS = 4
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
PICTURED = {
    "index",
    "shop_sale_changelist",
    "shop_sale_add",
    "shop_product_change",
    "shop_order_changelist",
    "suspicion",
}


def pages_of_models() -> Iterator[tuple[str, str]]:
    """Yield name and address of every list, and of the forms and the history of its first row."""
    for model in admin.site._registry:
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        yield f"{name}_changelist", reverse(f"admin:{name}_changelist")
        first = model._default_manager.order_by("-pk").first()
        for page in ("change", "history", "delete"):
            if first is not None:
                yield f"{name}_{page}", reverse(f"admin:{name}_{page}", args=[first.pk])
        yield f"{name}_add", reverse(f"admin:{name}_add")


def other_pages(card: SaleCard, order_id: int) -> Iterator[tuple[str, str]]:
    """Yield the pages that are of no model's form."""
    for name in ("index", "password_change", "second_factor", "second_factor_enrol"):
        yield name, reverse(f"admin:{name}")
    for app in sorted({model._meta.app_label for model in admin.site._registry}):
        yield f"app_{app}", reverse("admin:app_list", args=[app])
    yield "stock-live", reverse("stock-live")
    yield "room", reverse("admin:shop_sale_room", args=[card.sale_id])
    yield "audit", reverse("admin:shop_sale_audit", args=[card.sale_id])
    yield "codes", reverse("admin:shop_sale_codes", args=[card.sale_id])
    yield "list", reverse("admin:shop_sale_list", args=[card.sale_id])
    yield "suspicion", reverse("admin:shop_sale_suspicion", args=[card.sale_id])
    for act in ROOM_ACTS:
        yield f"room_{act}", reverse("admin:shop_sale_room_act", args=[card.sale_id, act])
    for act in ORDER_ACTS:
        yield f"order_{act}", reverse("admin:shop_order_act", args=[order_id, act])


def look(visit: Visit, name: str, path: str) -> list[str]:
    """Open a page and return what is wrong with it, in both colour schemes. Some rows nobody may add or delete."""
    answer = visit.page.goto(visit.root + path)
    assert answer is not None
    if answer.status == 403 and name.endswith(("_add", "_delete")):
        return []
    faults = [] if answer.status < 300 or answer.status == 409 else [f"{path}: {answer.status}"]
    # In the dark a page has other colours and nothing else.
    for scheme, check in (("light", visit.check_page), ("dark", partial(visit.check_rules, COLOUR_RULES))):
        visit.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        try:
            check(preload=False)
        except AssertionError as error:
            faults.append(f"{name} {scheme}: {error}"[:1500])
    if name in PICTURED:
        visit.picture(f"admin-{name}")
    return faults


@pytest.fixture
def filled_shop(open_sale: MakeSale, new_sku: Callable[[], str]) -> tuple[SaleCard, int]:
    """Return a sale with an order in it, and the order's id; every list has a row."""
    card = open_sale(units=3)
    order, *_ = [
        Order.objects.create(
            request_id=f"looked-at-{token_hex(8)}", sale_id=card.sale_id, buyer=f"looked-at-{number}", quantity=1,
            buyer_limit=1, seq=1 + number, state="refused", reason="Looked at", unit_price=card.price,
            currency=card.currency, network="0123456789ab",
        )
        for number in range(3)
    ]  # fmt: skip
    user = User.objects.create_user(f"looked-at-{new_sku()}"[:60], is_staff=True)
    Group.objects.get_or_create(name="viewer")
    TermsTemplate.objects.get_or_create(name="Looked at", defaults={"price": 5})
    product = Product.objects.get(slug=card.sku)
    LogEntry.objects.log_actions(user.pk, [product], 2, change_message="Looked at", single_object=True)
    return card, order.pk


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_of_the_admin_is_one_that_everybody_can_use(
    filled_shop: tuple[SaleCard, int], staff: Callable[..., Visit], part: int
) -> None:
    """In parts, because of the time that a test may take."""
    visit, faults = staff("superuser", reduced_motion="reduce"), []
    pages = [*other_pages(*filled_shop), *pages_of_models()]
    assert len(pages) > 60
    for name, path in pages[part::PARTS]:
        faults += look(visit, name, path)
    assert faults == [], "\n".join(faults)


def test_the_control_a_fault_of_a_page_is_found(staff: Callable[..., Visit]) -> None:
    visit = staff("superuser", reduced_motion="reduce")
    visit.go("/admin/")
    visit.page.evaluate("document.querySelector('#content a').replaceChildren()")
    with pytest.raises(AssertionError, match="link-name"):
        visit.check_page(preload=False)
    visit.page.emulate_media(color_scheme="dark")
    visit.check_rules(COLOUR_RULES, preload=False)
    visit.page.evaluate("document.querySelector('#content h1').style.color = 'rgb(30, 35, 60)'")
    with pytest.raises(AssertionError, match="color-contrast"):
        visit.check_rules(COLOUR_RULES, preload=False)


def test_the_look_follows_the_reader_and_the_switch(staff: Callable[..., Visit]) -> None:
    """As the shop's pages do; the switch in the head goes before the browser's own wish."""
    visit = staff("superuser")
    visit.go("/admin/")

    def background() -> Any:
        return visit.page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = "rgb(255, 255, 255)", "rgb(23, 27, 48)"
    visit.page.emulate_media(color_scheme="light")
    assert background() == light
    visit.page.emulate_media(color_scheme="dark")
    assert background() == dark
    for _ in range(3):  # auto, and the two that a person may choose
        visit.page.get_by_role("button", name="Toggle theme").click()
        theme = visit.page.evaluate("document.documentElement.dataset.theme")
        assert background() == {"light": light, "dark": dark, "auto": dark}[theme]


def test_the_forms_of_staff_work_by_keyboard(staff: Callable[..., Visit]) -> None:
    visit = staff("manager", viewport=PHONE)
    visit.go("/admin/shop/sale/add/")
    # The form begins with the keyboard in its first field; backwards from there all of the head is reached.
    expect(visit.page.locator("[name=title]")).to_be_focused()
    seen: set[str] = set()
    for _ in range(60):
        visit.page.keyboard.press("Tab")
        seen.add(visit.page.evaluate("document.activeElement.name || document.activeElement.textContent.trim()"))
    assert {"slug", "sku", "units", "upload", "price", "opens_at_0", "Preview as buyers will see it"} <= seen


def test_a_press_on_the_switch_is_enough_without_a_script(staff: Callable[..., Visit]) -> None:
    visit = staff("manager", java_script_enabled=False)
    visit.go("/admin/shop/sale/?q=kite")
    visit.press("简体中文")
    expect(visit.page.locator("html")).to_have_attribute("lang", "zh-hans")
    assert visit.page.url.endswith("/admin/shop/sale/?q=kite")
    visit.press("English")
    expect(visit.page.locator("html")).to_have_attribute("lang", "en")


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_pages_in_chinese_are_ones_that_everybody_can_use(
    filled_shop: tuple[SaleCard, int], staff: Callable[..., Visit], size: dict[str, int]
) -> None:
    """Those that staff use most; what their words are is held by tests/integration/shop/staff/test_chinese.py."""
    visit = staff("superuser", reduced_motion="reduce", viewport=size, locale="zh-CN")
    card, order_id = filled_shop
    pages = {name: reverse(f"admin:{name}") for name in ("index", "shop_sale_changelist", "shop_sale_add")}
    pages |= {"orders": reverse("admin:shop_order_changelist"), "acts": reverse("admin:shop_staffact_changelist")}
    pages |= {"order": reverse("admin:shop_order_change", args=[order_id]), "stock": reverse("stock-live")}
    pages |= {name: reverse(f"admin:shop_sale_{name}", args=[card.sale_id]) for name in ("room", "audit")}
    for name, path in pages.items():
        visit.go(path)
        assert visit.page.get_attribute("html", "lang") == "zh-hans"
        visit.check_page(preload=False)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= size["width"], name
        visit.picture(f"admin-zh-{name}")
    assert visit.faults == []
