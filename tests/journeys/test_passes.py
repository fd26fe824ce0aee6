"""A sale that asks for a pass, in a real browser: with script it is there before the opening and nobody notices;
without script a page gives one after a wait. In both languages, on a phone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Browser, Error, Route, expect

from shop.models import Sale
from shop.sales.catalogue import SaleCard
from shop.sales.priming import prime_sale
from tests.journeys.visits import PHONE, Visit, pictured_sales, wait_until_open
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.shopkeeping import assert_books_balance
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
READY = {"en-GB": "Your pass is ready.", "zh-CN": "您的通行证已就绪。"}
LITTLE_WORK = "20"


@pytest.fixture(scope="module")
def pass_web(
    whole_shop: Caller, lasting_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    """Run a web process alongside the whole shop, with some work for a pass and a short wait without script."""
    given = {"FAIRDROP_PASS_WORK": LITTLE_WORK, "FAIRDROP_PASS_WAIT_SECONDS": "2"}
    folder, patient = tmp_path_factory.mktemp("passes"), program_with(PATIENT_WEB)
    with web_process({**lasting_environment, **given}, folder=folder, program=patient) as web:
        yield web


@pytest.fixture
def guarded_sale(pass_web: Caller, shop_database: None, new_sku: Callable[[], str]) -> MakeSale:
    """Return a function that makes a sale that asks for a pass."""
    make = pictured_sales(pass_web, new_sku)
    return lambda **terms: make(**{"units": 3, "pass_mode": "always", **terms})


@pytest.fixture
def person(chromium: Browser, pass_web: Caller) -> Iterator[OpenVisit]:
    """Return a function that opens a browser at that process; each must end without a fault in its console."""
    opened: list[Visit] = []

    def open_one(**terms: object) -> Visit:
        opened.append(Visit.open(chromium, f"http://127.0.0.1:{pass_web.port}", **{"viewport": PHONE, **terms}))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
    for each in opened:
        assert each.faults == []


@pytest.mark.parametrize("locale", READY)
def test_the_pass_is_there_before_the_opening(locale: str, guarded_sale: MakeSale, person: OpenVisit) -> None:
    ann = person(locale=locale)
    for seconds in (20, 120):  # the second for a machine on which the first is nearly over when the pass is there
        card = guarded_sale(opens_in_seconds=seconds)
        ann.see_sale(card)
        ann.sees(READY[locale])
        if card.opens_at - datetime.now(card.opens_at.tzinfo) > timedelta(seconds=10):
            break
    expect(ann.page.locator("form.buy button")).to_be_disabled()  # it is not open yet
    expect(ann.page.locator("[data-pass] input")).to_have_value(re.compile(r"^p\d+\.[\w-]{22}\.[\w-]{22}$"))
    ann.check_page()
    ann.picture(f"pass-ready-{locale}")
    expect(ann.page.locator("form.buy button")).to_be_enabled()
    wait_until_open(card)
    ann.page.locator("form.buy button").click()
    ann.page.wait_for_url("**/requests/**")
    ann.sees_state("held")
    assert_books_balance(card)


@pytest.mark.parametrize("locale", READY)
def test_without_script_a_page_gives_one(locale: str, guarded_sale: MakeSale, person: OpenVisit) -> None:
    card, bob = guarded_sale(), person(locale=locale, java_script_enabled=False)
    bob.see_sale(card)
    bob.picture(f"pass-none-{locale}")
    bob.page.locator("form.buy button").click()
    expect(bob.page.locator("main [role=alert]")).to_be_visible()
    bob.picture(f"pass-required-{locale}")
    bob.page.locator("main [role=alert] a").click()
    bob.page.wait_for_url("**/pass/")
    bob.picture(f"pass-waiting-{locale}")
    bob.sees(READY[locale])  # by itself
    bob.picture(f"pass-waited-{locale}")
    bob.page.locator("a.away").click()
    bob.page.locator("form.buy button").click()
    bob.page.wait_for_url("**/requests/**")
    bob.sees_state("held")
    assert_books_balance(card)


@pytest.mark.parametrize("browser", ["", "delete HTMLFormElement.prototype.requestSubmit"], ids=["new", "Safari 15.6"])
def test_a_press_that_comes_too_soon_goes_out_with_the_pass(
    browser: str, guarded_sale: MakeSale, person: OpenVisit
) -> None:
    card, ann = guarded_sale(), person()
    ann.page.add_init_script(browser)
    # The answer with the challenge is held back until the button was pressed.
    waiting: list[Route] = []
    ann.page.route("**/challenge", lambda route: waiting.append(route))
    ann.see_sale(card)
    ann.page.locator("form.buy button").click()
    ann.sees("Your press goes out as soon as your pass is ready.")
    ann.page.unroute("**/challenge")
    for route in waiting:
        with suppress(Error):  # the page gave up waiting for it, and asks again
            route.continue_()
    ann.page.wait_for_url("**/requests/**")
    ann.sees_state("held")


def test_a_pass_that_is_wanted_since_the_page_was_loaded_is_made_after_the_press(
    guarded_sale: MakeSale, person: OpenVisit
) -> None:
    card, ann = guarded_sale(pass_mode="never"), person()
    ann.see_sale(card)
    Sale.objects.filter(pk=card.sale_id).update(pass_mode="always")
    prime_sale(card.slug)
    wait_until(lambda: "data-pass" in ann.context.request.get(ann.page.url).text(), what="a pass is wanted")
    ann.page.locator("form.buy button").click()
    ann.sees("A pass is needed here")
    ann.sees(READY["en-GB"])
    ann.page.locator("form.buy button").click()
    ann.page.wait_for_url("**/requests/**")
    ann.sees_state("held")


def test_a_spent_pass_is_replaced_by_the_page_itself(guarded_sale: MakeSale, person: OpenVisit) -> None:
    card, ann = guarded_sale(limit=2), person()
    ann.see_sale(card)
    ann.sees(READY["en-GB"])
    expect(ann.page.locator("[data-pass] input")).not_to_have_value("")
    first = ann.page.locator("[data-pass] input").input_value()
    ann.page.locator("form.buy button").click()
    ann.page.wait_for_url("**/requests/**")
    ann.see_sale(card)
    ann.sees(READY["en-GB"])
    expect(ann.page.locator("[data-pass] input")).not_to_have_value("")
    expect(ann.page.locator("[data-pass] input")).not_to_have_value(first)
    # What another tab has spent is refused once, and the page makes another one.
    press = "(input, text) => { input.value = text; document.querySelector('form.buy button').click(); }"
    ann.page.locator("[data-pass] input").evaluate(press, first)
    ann.sees("A pass is needed here")
    ann.sees(READY["en-GB"])
    ann.page.locator("form.buy button").click()
    ann.page.wait_for_url("**/requests/**")
    ann.sees_state("held")


def test_a_browser_that_cannot_make_one_is_led_to_the_wait(guarded_sale: MakeSale, person: OpenVisit) -> None:
    card, ann = guarded_sale(), person()
    ann.page.add_init_script("delete globalThis.Worker;")
    ann.see_sale(card)
    ann.sees("Your browser cannot make a pass.")
    ann.picture("pass-cannot")
    ann.page.locator("[data-wait] a").click()
    ann.page.wait_for_url("**/pass/")
    ann.sees(READY["en-GB"])


def test_a_challenge_that_ended_while_the_phone_slept_is_followed_by_another_one(
    guarded_sale: MakeSale, person: OpenVisit
) -> None:
    card, ann = guarded_sale(), person()
    refused: list[str] = []

    def refuse_once(route: Route) -> None:
        if refused:
            return route.continue_()
        refused.append(route.request.url)
        return route.fulfill(status=403, json={"code": "pass_required", "detail": "This challenge has ended."})

    ann.page.route("**/passes", refuse_once)
    ann.see_sale(card)
    ann.sees(READY["en-GB"])
    ann.faults.clear()  # the console has the 403
    ann.page.locator("form.buy button").click()
    ann.page.wait_for_url("**/requests/**")
    assert len(refused) == 1


def test_who_could_make_none_makes_one_when_their_press_was_refused(guarded_sale: MakeSale, person: OpenVisit) -> None:
    card, ann = guarded_sale(), person()
    ann.page.route("**/passes", lambda route: route.fulfill(status=403, json={"code": "pass_required"}))
    ann.see_sale(card)
    ann.sees("Your browser cannot make a pass.")
    ann.page.unroute("**/passes")
    ann.page.locator("form.buy button").click()
    ann.sees("A pass is needed here")
    ann.sees(READY["en-GB"])
    ann.faults.clear()  # the console has each 403
    ann.page.locator("form.buy button").click()
    ann.page.wait_for_url("**/requests/**")


def test_a_fast_clock_makes_no_pass_after_pass(guarded_sale: MakeSale, person: OpenVisit) -> None:
    card, ann = guarded_sale(opens_in_seconds=900, closes_in_seconds=3_600), person()
    asked: list[str] = []
    ann.page.on("request", lambda request: asked.append(request.url) if "/challenge" in request.url else None)
    ann.page.add_init_script("const at = Date.now; Date.now = () => at() + 3600000;")
    ann.see_sale(card)
    ann.sees(READY["en-GB"])
    made = len(asked)
    ann.page.evaluate("document.dispatchEvent(new Event('parts-replaced'))")  # as when the page's figures change
    ann.page.wait_for_timeout(3_000)
    assert len(asked) == made


def test_who_is_given_no_challenge_is_not_kept_from_pressing(guarded_sale: MakeSale, person: OpenVisit) -> None:
    """A token that cannot be verified any more is replaced by a press alone, so presses must go out."""
    card, ann = guarded_sale(), person()
    ann.page.route("**/challenge", lambda route: route.fulfill(status=401, json={"code": "unauthenticated"}))
    ann.see_sale(card)
    ann.page.locator("form.buy button").click()
    ann.sees("Your browser cannot make a pass.")
    ann.page.unroute("**/challenge")
    ann.page.locator("form.buy button").click()
    ann.sees("A pass is needed here")
    ann.sees(READY["en-GB"])
    ann.faults.clear()  # the console has each 401 and 403
    ann.page.locator("form.buy button").click()
    ann.page.wait_for_url("**/requests/**")
