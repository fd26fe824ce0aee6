"""A word that is wider than a phone breaks: no page scrolls sideways for it, and no button is cut. On the list, the
page of a sale, its ticket, its payment page and My tickets, at three widths. The control takes the rules out of the
style.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shop.models import Product, Sale
from shop.sales.catalogue import SaleCard
from tests.journeys.visits import PATIENCE_MS, Visit, resize
from tests.support.http_calls import Caller
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
STATIC = Path(__file__).resolve().parents[2] / "shop" / "static" / "shop"
WIDTHS = (320, 390, 1280)
WORDS = ("Donaudampfschifffahrtskapitänsmütze", "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen")
ADDRESS = "https://shop.example/care-and-sizes/" + "of-every-numbered-edition-" * 3
RULES = {
    "shop.css": "main { overflow-wrap: anywhere; }",
    "pages.css": "grid-template-columns: minmax(0, 1fr); gap: .55rem;",
}
# The whole page, and each of its parts that people see, lies within the screen.
TOO_WIDE = """() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  const parts = [...document.querySelectorAll("main *:not(.vh, .vh *)")].filter((part) => part.checkVisibility());
  const over = parts.filter((part) => part.getBoundingClientRect().right > clientWidth + 1);
  return scrollWidth > clientWidth || over.length > 0;
}"""


def without_rules(buyer: Visit) -> None:
    """Let this browser get the style without what breaks words."""
    for name, rule in RULES.items():
        text = (STATIC / name).read_text()
        assert text.count(rule) == 1
        altered = text.replace(rule, "")
        buyer.context.route(
            f"**/{name}", lambda route, _, body=altered: route.fulfill(body=body, content_type="text/css")
        )


def web_shows(web: Caller, path: str, word: str) -> bool:
    return word in web.get(path).body.decode()


def describe(card: SaleCard, word: str, web: Caller) -> None:
    """Give the sale texts that have no place to break, and wait until its page and the list show them.

    The web process reads each of the two by itself, so one may still be old when the other is not.
    """
    Sale.objects.filter(pk=card.sale_id).update(title=word)
    Product.objects.filter(slug=card.sku).update(tagline=ADDRESS, description="x" * 200)
    for path in (f"/sales/{card.slug}/", "/"):
        wait_until(partial(web_shows, web, path, word), timeout_seconds=PATIENCE_MS / 1000)


def too_wide(buyer: Visit) -> list[int]:
    """Return the widths of a screen at which the page that is shown does not fit."""
    wide = []
    for width in WIDTHS:
        resize(buyer.page, width=width, height=844)
        wide += [width] if buyer.page.evaluate(TOO_WIDE) else []
    return wide


def walk(card: SaleCard, buyer: Visit, *, name: str) -> dict[str, list[int]]:
    """Go from the list to My tickets by way of the payment page; return what is too wide, by the name of the page.

    name: of the pictures that are kept.
    """
    found = {}
    buyer.go("/")
    found["list"] = too_wide(buyer)
    buyer.see_sale(card)
    found["sale"] = too_wide(buyer)
    buyer.picture(f"{name}-sale")
    buyer.get_one(card)
    found["ticket"] = too_wide(buyer)
    buyer.picture(f"{name}-ticket")
    buyer.press("Pay €")
    buyer.page.wait_for_url("**/sandbox/pay/**")
    found["payment"] = too_wide(buyer)
    buyer.go("/tickets/")
    found["My tickets"] = too_wide(buyer)
    return found


@pytest.mark.parametrize("word", WORDS, ids=["35 letters", "58 letters"])
def test_a_long_word_makes_no_page_wider(word: str, open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    card, buyer = open_sale(units=2, limit=2), visit()
    describe(card, word, whole_shop)
    assert {page: wide for page, wide in walk(card, buyer, name="long-word").items() if wide} == {}


def test_without_the_rules_it_does(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    """The control: the same look sees pages that are too wide for a phone."""
    card, buyer = open_sale(units=2, limit=2), visit()
    without_rules(buyer)
    describe(card, WORDS[1], whole_shop)
    wide = walk(card, buyer, name="long-word-control")
    assert all({320, 390} <= set(wide[page]) for page in ("list", "sale", "ticket")), wide
