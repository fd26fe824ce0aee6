"""A buyer's browser at the shop: presses, looks, waits for what the page shows, and notes every fault of the console.
Never calls the API alongside the page, never sleeps.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Error, Page, Request, Response, expect

from shop.models import Product
from shop.sales.catalogue import SaleCard, find_sale
from tests.support import road
from tests.support.http_calls import Caller
from tests.support.shown_sales import shown_sales
from tests.support.waiting import wait_until

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
LOOKS: tuple[tuple[dict[str, int], Literal["light", "dark"]], ...] = ((PHONE, "light"), (DESKTOP, "dark"))
NARROW = {"width": 320, "height": 640}
# For what would never happen: every wait ends as soon as its condition holds, however slow the machine is.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)
SCREENS = Path(__file__).resolve().parent.parent.parent / "out" / "screens"
# What Chromium says of a page that began to load and was overtaken by another.
BROKEN_OFF = re.compile(r"ERR_ABORTED|interrupted by another navigation")
# What a browser says when the test itself takes the network or the ticket away, and of a preview, which runs no script.
EXPECTED = re.compile(
    r"Failed to load resource|net::ERR_|EventSource's response has a MIME type"
    r"|Blocked script execution in 'about:srcdoc'|Note that 'script-src' was not explicitly set"
    r"|Refused to execute the redirect specified via '<meta .* The document is sandboxed"
)
# What a browser does when its reader looks at another tab, and when they come back.
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def pictured_sales(web: Caller, new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    """Return a function that makes a sale with a picture (the terms of make_sale) and waits until it is shown."""
    make = shown_sales(web, new_sku)

    def make_pictured(**terms: Any) -> SaleCard:
        card = make(**terms)
        Product.objects.filter(slug=card.sku).update(
            picture="shop/products/lantern.svg", tagline="Folded by hand from one sheet"
        )
        return find_sale(card.slug)

    return make_pictured


def resize(page: Page, *, width: int, height: int) -> None:
    """Give a page a size, and return when it is laid out."""
    page.set_viewport_size({"width": width, "height": height})
    wait_until(lambda: page.evaluate("[innerWidth, innerHeight]") == [width, height], what=f"it is {width} px wide")


def take_all(card: SaleCard) -> str:
    """Let somebody without a browser have the only unit before anybody who comes now; return their request id."""
    (name,) = road.queue(card, "holder-0000000000000000")
    return name


def wait_until_open(card: SaleCard) -> None:
    """Wait for the moment of a sale: on a busy machine a page's clock may be a little ahead of the shop's."""
    wait_until(lambda: timezone.now() >= card.opens_at, what="the sale opens")


def is_lost_part(answer: Response) -> bool:
    """Say whether the shop was asked for a part of a page, such as a script or a picture, and did not have it."""
    return answer.status == 404 and answer.request.resource_type in {"stylesheet", "script", "image", "font"}


@dataclass
class Visit:
    """One browser of one person. faults: what its console complained of; asks: calls without an answer yet."""

    root: str
    context: BrowserContext
    page: Page
    faults: list[str] = field(default_factory=list)
    asks: set[Request] = field(default_factory=set)

    @classmethod
    def open(cls, browser: Browser, root: str, *, viewport: dict[str, int] | None = None, **terms: Any) -> Visit:
        """Open a browser with no cookies; terms: those of Playwright's new_context."""
        context = browser.new_context(viewport=viewport or PHONE, **{"locale": "en-GB", **terms})
        context.set_default_timeout(PATIENCE_MS)
        made = cls(root, context, context.new_page())
        context.on("console", lambda message: made.note(message.text) if message.type == "error" else None)
        context.on("weberror", lambda error: made.note(str(error.error)))
        # The console's own word for it is expected of calls, where a test takes the network or the ticket away.
        context.on("response", lambda answer: made.note(f"404 {answer.url}") if is_lost_part(answer) else None)
        # A stream is under way all the time.
        context.on("request", lambda ask: made.asks.add(ask) if re.search(r"/api/.*(?<!/events)$", ask.url) else None)
        for ended in ("requestfinished", "requestfailed"):
            context.on(ended, lambda ask: made.asks.discard(ask))
        return made

    def note(self, text: str) -> None:
        if not EXPECTED.search(text):
            self.faults.append(text)

    def close(self) -> None:
        self.context.close()

    def go(self, path: str) -> None:
        self._load(lambda: self.page.goto(self.root + path))

    def reload(self) -> None:
        self._load(self.page.reload)

    def _load(self, load: Callable[[], object]) -> None:
        """Load a page. One that shows itself again at that moment ends what was begun, so begin it once more."""
        try:
            load()
        except Error as error:
            if not BROKEN_OFF.search(error.message):
                raise
            load()

    def see_sale(self, card: SaleCard) -> None:
        self.go(f"/sales/{card.slug}/")

    def stop_clock(self) -> None:
        """Let the page's time go on only when the test says so. It needs `page.clock.install()` before the page."""
        try:
            self.page.clock.pause_at(self.page.evaluate("Date.now() / 1000 + 10"))
        except Error as error:  # the moment had gone by when the call arrived; the clock stands still all the same
            if "fast-forward to the past" not in error.message:
                raise
        # An answer that comes later would show what the test does from now on.
        wait_until(lambda: self.page.title() is not None and not self.asks, what="every ask is answered")
        self.page.evaluate("delete AbortSignal.timeout")  # it goes by the page's clock, which the test turns on

    def come_back(self) -> None:
        """Look at the tab again: its page then asks at once, and not when its next look is due."""
        self.page.evaluate(HIDE, False)

    def wait_for_faults(self, text: str) -> None:
        """Wait until the console complains of `text`."""
        # What it says arrives while the page is asked for something.
        wait_until(lambda: self.page.title() is not None and any(text in fault for fault in self.faults), what=text)

    def press(self, name: str) -> None:
        """Press a button as a person does: it must be there, be seen, and be on."""
        self.page.get_by_role("button", name=name).click()

    def join(self, card: SaleCard) -> str:
        """Ask for a unit on the sale page, whatever its button says; return the request id of the ticket it led to."""
        self.see_sale(card)
        self.page.locator("form.buy button").click()
        self.page.wait_for_url("**/requests/**")
        return self.request_id

    def get_one(self, card: SaleCard) -> str:
        """Ask for a unit and get it; return the request id."""
        self.join(card)
        self.sees_state("held")
        return self.request_id

    def wait_in_line(self, card: SaleCard) -> str:
        """Ask for a unit while all are held; return the request id."""
        self.join(card)
        self.sees_state("waitlisted")
        return self.request_id

    @property
    def request_id(self) -> str:
        return self.page.url.rstrip("/").rsplit("/", 1)[1]

    def sees_state(self, *states: str) -> None:
        """Wait until the ticket is in one of `states`."""
        found = re.compile("|".join(f"^{state}$" for state in states))
        expect(self.page.locator("[data-ticket]")).to_have_attribute("data-state", found)

    def sees(self, text: str) -> None:
        """Wait until `text` is seen."""
        expect(self.page.get_by_text(text).filter(visible=True).first).to_be_visible()

    def give_address(self, address: dict[str, str]) -> None:
        """Fill in where the goods go, and press the button of that form. address: a text by the name of each field."""
        for name, text in address.items():
            self.page.locator(f".delivery [name={name}]").fill(text)
        self.page.locator(".delivery form:has(textarea) button").click()
        expect(self.page.locator(".delivery address")).to_contain_text(address["name"])

    def pay(self, choice: str = "Pay €") -> None:
        """Go to the payment page and press a button there."""
        self.press("Pay €")
        self.page.wait_for_url("**/sandbox/pay/**")
        self.page.get_by_role("button", name=re.compile(f"^{re.escape(choice)}")).first.click()
        self.page.wait_for_url("**/requests/**")

    def check_page(self, *, preload: bool = True) -> None:
        """Fail when axe finds something, or when the page scrolls sideways at 320 px.

        preload=False: of a stylesheet that imports another one axe would make a style element, which is against the
        policy of the page; the admin's own do.
        """
        self.check_rules(RULES, preload=preload)
        before = self.page.viewport_size
        assert before is not None
        self.page.set_viewport_size({"width": NARROW["width"], "height": NARROW["height"]})
        width = "document.documentElement.scrollWidth"
        wide = self.page.evaluate(width)
        ends = time.monotonic() + PATIENCE_MS / 4000
        while wide > NARROW["width"] and time.monotonic() < ends:  # charts follow a moment later
            self.page.wait_for_timeout(100)
            wide = self.page.evaluate(width)  # what waits for a function is against the policy of the page
        assert wide <= NARROW["width"], f"{self.page.url} is {wide} px wide at {NARROW['width']}"
        self.page.set_viewport_size(before)

    def check_rules(self, rules: list[str], *, preload: bool = True) -> None:
        """Fail when axe finds something against `rules`: names of rules, or of groups of them."""
        options = {"runOnly": rules, "resultTypes": ["violations"], "preload": preload}
        found = Axe().run(self.page, options=options).response["violations"]
        faults = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
        assert not faults, f"{self.page.url}: {faults}"

    def picture(self, name: str) -> None:
        """Keep a picture of the page, light on a phone and dark on a desk."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        before = self.page.viewport_size
        assert before is not None
        for size, scheme in LOOKS:
            self.page.set_viewport_size({"width": size["width"], "height": size["height"]})
            self.page.emulate_media(color_scheme=scheme)
            self.page.screenshot(path=SCREENS / f"{name}-{size['width']}-{scheme}.png", full_page=True)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size(before)
