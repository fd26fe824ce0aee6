"""The first hour of docs/running-a-sale.md, step by step: from a manager's password to a product of one's own with a
picture, sold to a crowd, one order refunded, all exported. Real Chromium, the real shop, the demo's own crowd.

A step is named as its heading in the document; tests/rules/test_docs.py compares the two.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Download, Page, expect

from shop.models import Order, Product, Sale
from shop.sales.catalogue import find_sale
from tests.journeys.visits import DESKTOP, SCREENS, Visit
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import ROOT, shop_process
from tests.support.shopkeeping import assert_books_balance
from tests.support.staff import new_user
from tests.support.waiting import wait_until

PASSWORD = "a long and secret password"
UNITS, HOLD_SECONDS, PEOPLE, SEED = 12, 20, 100, 7
OPENS_IN = timedelta(minutes=1)  # a person takes three
# For what would never happen: from the opening on, all is sold in a minute or two.
SELLING_SECONDS = 500.0


@dataclass
class Hour:
    """Where the newcomer is: the admin in one browser, the shop in another, the crowd."""

    admin: Visit
    buyer: Visit
    slug: str
    name: str
    crowd: ExitStack = field(default_factory=ExitStack)

    @property
    def page(self) -> Page:
        return self.admin.page

    @property
    def sale(self) -> Sale:
        return Sale.objects.get(slug=self.slug)

    def photo(self) -> bytes:
        """Return a photo of a teapot, as a camera would give it."""
        page = self.buyer.context.new_page()
        page.goto(f"{self.buyer.root}/static/shop/products/teapot.svg")
        page.set_viewport_size({"width": 480, "height": 360})
        taken = page.screenshot(type="jpeg", quality=90)
        page.close()
        return taken

    def picture(self, name: str, *, of: Page | None = None) -> None:
        """Keep what is on the screen, as the document shows it."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        (of or self.page).screenshot(path=SCREENS / f"first-hour-{name}.png")


Step = Callable[[Hour], None]
STEPS: list[tuple[str, Step]] = []


def step(title: str) -> Callable[[Step], Step]:
    """Put a step after those before it."""

    def named(walk: Step) -> Step:
        STEPS.append((title, walk))
        return walk

    return named


@step("Start the shop and log in")
def log_in(hour: Hour) -> None:
    hour.admin.go("/admin/")
    hour.page.get_by_label("Username").fill(hour.name)
    hour.page.get_by_label("Password").fill(PASSWORD)
    hour.admin.press("Log in")


@step("Begin a sale")
def begin(hour: Hour) -> None:
    hour.page.get_by_role("link", name="Sales", exact=True).first.click()
    hour.page.get_by_role("link", name="Add sale").first.click()


@step("Describe your product")
def describe(hour: Hour) -> None:
    page = hour.page
    page.locator("[name=title]").fill("Tea set")
    page.locator("[name=title]").press("Tab")
    expect(page.locator("[name=slug]")).to_have_value("tea-set")  # made of the title, a moment later
    texts = {"slug": hour.slug, "sku": hour.slug, "units": str(UNITS), "tagline": "Six cups and a pot"}
    for name, text in texts.items():
        page.locator(f"[name={name}]").fill(text)
    file = {"name": "tea.jpg", "mimeType": "image/jpeg", "buffer": hour.photo()}
    page.get_by_label("Picture").set_input_files(file)  # type: ignore[arg-type]


@step("Say what it costs and when it opens")
def set_terms(hour: Hour) -> None:
    opens = timezone.now() + OPENS_IN
    closes = opens + timedelta(days=1)
    texts = {
        "price": "49", "currency": "EUR", "per_buyer_limit": "1", "hold_seconds": str(HOLD_SECONDS),
        "opens_at_0": f"{opens:%Y-%m-%d}", "opens_at_1": f"{opens:%H:%M:%S}",
        "closes_at_0": f"{closes:%Y-%m-%d}", "closes_at_1": f"{closes:%H:%M:%S}",
    }  # fmt: skip
    for name, text in texts.items():
        hour.page.locator(f"[name={name}]").fill(text)
    hour.page.locator("[name=title]").scroll_into_view_if_needed()
    hour.picture("form")


@step("Look at it as your buyers will")
def preview(hour: Hour) -> None:
    with hour.admin.context.expect_page() as opened:
        hour.admin.press("Preview as buyers will see it")
    shown = opened.value
    inside = shown.get_by_role("region", name="On a desk").locator("iframe").content_frame
    expect(inside.get_by_role("heading", name="Tea set")).to_be_visible()
    assert inside.locator(".pic img").evaluate("(image) => image.decode().then(() => image.naturalWidth)")
    hour.picture("preview", of=shown)
    shown.close()
    assert not Sale.objects.filter(slug=hour.slug).exists()


@step("Save it")
def save(hour: Hour) -> None:
    hour.page.get_by_label("Your password, again").fill(PASSWORD)
    hour.page.get_by_role("button", name="Save", exact=True).click()
    hour.admin.sees("was added successfully")
    shop, path = hour.buyer.page, f"{hour.buyer.root}/sales/{hour.slug}/"
    wait_until(lambda: "Tea set" in str(shop.goto(path).text()), what="buyers see it")  # type: ignore[union-attr]
    assert shop.locator(".sale .pic img").get_attribute("src") == f"/{Product.objects.get(slug=hour.slug).picture}"
    hour.picture("sale", of=shop)


@step("Let a crowd come")
def crowd(hour: Hour) -> None:
    words = ["--host", hour.admin.root, "--people", str(PEOPLE), "--prefix", hour.slug, "--seed", str(SEED)]
    people = subprocess.Popen([sys.executable, "-m", "loadtest.visitors", *words], cwd=ROOT)
    hour.crowd.callback(people.wait, 120)
    hour.crowd.callback(people.terminate)


@step("Watch it sell")
def watch(hour: Hour) -> None:
    hour.page.locator("#result_list").get_by_role("link", name=hour.slug, exact=True).first.click()
    wait_until(lambda: timezone.now() >= hour.sale.opens_at, timeout_seconds=SELLING_SECONDS, what="it opens")
    hour.admin.sees("The sale is open.")
    paid = Order.objects.filter(sale__slug=hour.slug, state="paid")
    wait_until(lambda: paid.count() == UNITS, timeout_seconds=SELLING_SECONDS, what="every unit is paid")
    numbers = hour.page.locator(".room-numbers")
    expect(numbers.locator("div", has=hour.page.get_by_text("sold", exact=True)).locator("dd")).to_have_text(str(UNITS))
    expect(numbers).to_contain_text("€588.00")
    hour.picture("room")


@step("Refund one buyer")
def refund(hour: Hour) -> None:
    hour.admin.go("/admin/")
    hour.page.get_by_role("link", name="Orders", exact=True).first.click()
    order = Order.objects.filter(sale__slug=hour.slug, state="paid").first()
    assert order is not None
    hour.page.locator("#searchbar").fill(order.buyer)
    hour.admin.press("Search")
    rows = hour.page.locator("#result_list tbody tr")
    expect(rows).to_have_count(1)
    rows.get_by_role("link").first.click()
    hour.page.get_by_role("link", name="Refund…").click()
    hour.page.get_by_label("Reason").fill("A cup was broken.")
    password = hour.page.get_by_label("Your password, again")
    if password.count():  # after five minutes
        password.fill(PASSWORD)
    hour.picture("refund")
    hour.admin.press("Refund")
    # That one: who paid too late has the money back as well.
    refunded = Order.objects.filter(pk=order.pk, state="refunded")
    wait_until(lambda: refunded.exists() or password.count(), what="it is refunded, or the five minutes are over")
    if password.count():
        password.fill(PASSWORD)
        hour.admin.press("Refund")
        wait_until(refunded.exists, what="it is refunded")


@step("Take your orders with you")
def export(hour: Hour) -> None:
    hour.admin.go(f"/admin/shop/order/?sale__id__exact={hour.sale.pk}")
    hour.picture("orders")
    orders = Order.objects.filter(sale__slug=hour.slug)
    # The crowd goes on meanwhile.
    before, refunded = orders.count(), orders.filter(state="refunded").count()
    with hour.page.expect_download() as download:
        hour.page.get_by_role("link", name="Export as CSV").click()
    states = states_of(download.value)
    assert before <= len(states) <= orders.count()
    assert 1 <= refunded <= states.count("refunded") <= orders.filter(state="refunded").count()
    assert states.count("paid") >= UNITS - 1


def states_of(download: Download) -> list[str]:
    """Return the state of each order in a CSV."""
    with open(download.path(), newline="") as file:
        return [row["state"] for row in csv.DictReader(file)]


@pytest.fixture
def shop(lasting_environment: dict[str, str], tmp_path: Path) -> Iterator[Caller]:
    """A shop that believes the crowd's addresses, as the demo's does: else all of them come from one network."""
    environment = {**lasting_environment, "FAIRDROP_TRUSTED_PROXIES": "127.0.0.0/8"}
    with shop_process(environment, folder=tmp_path) as caller:
        yield caller


@pytest.fixture
def hour(chromium: Browser, shop: Caller, new_sku: Callable[[], str], shop_database: None) -> Iterator[Hour]:
    """A newcomer who has a manager's password and nothing else."""
    newcomer, root = new_user("manager"), f"http://127.0.0.1:{shop.port}"
    newcomer.set_password(PASSWORD)
    newcomer.save()
    with ExitStack() as running:
        admin, buyer = Visit.open(chromium, root, viewport=DESKTOP), Visit.open(chromium, root)
        running.callback(buyer.close)
        running.callback(admin.close)
        yield Hour(admin, buyer, new_sku(), newcomer.username)
    assert admin.faults + buyer.faults == []


@pytest.mark.timeout(8 * SELLING_SECONDS)
def test_a_newcomer_sells_a_product_of_their_own(hour: Hour) -> None:
    assert len(STEPS) == 10
    with hour.crowd:
        for title, walk in STEPS:
            print(title)  # pytest shows it when the step fails
            walk(hour)
    held = Order.objects.filter(sale__slug=hour.slug, state="held")
    wait_until(lambda: not held.exists(), what="every hold has ended")  # the audit calls one that is long over a fault
    assert_books_balance(find_sale(hour.slug))
    assert Product.objects.get(slug=hour.slug).stock.total == UNITS
