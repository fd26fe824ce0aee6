"""A member of staff in a real browser, as production asks it: password, second factor, and the password again before
money goes back. Pictures of each page are kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django_otp.plugins.otp_totp.models import TOTPDevice
from playwright.sync_api import Browser, expect

from shop.models import Order, StaffAct
from shop.sales.catalogue import SaleCard
from tests.journeys.visits import DESKTOP, Visit
from tests.support import road
from tests.support.http_calls import Caller
from tests.support.second_factor import STEP_SECONDS, authenticator_of, code_of
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.shopkeeping import pay
from tests.support.waiting import wait_until

PASSWORD = "a long and secret password"
# Not a page that only leads there (?next=/admin/).
INDEX = re.compile(r"^[^?]*/admin/$")


@pytest.fixture
def guarded_shop(whole_shop: Caller, process_environment: dict[str, str], tmp_path: Path) -> Iterator[Caller]:
    """The web process of the whole shop once more, with the second factor switched on."""
    caches["logins"].clear()
    environment = {**process_environment, "FAIRDROP_STAFF_SECOND_FACTOR": "true"}
    with web_process(environment, folder=tmp_path, program=program_with(PATIENT_WEB)) as web:
        yield web


@pytest.fixture
def browser_of_staff(chromium: Browser, guarded_shop: Caller) -> Iterator[Visit]:
    opened = Visit.open(chromium, f"http://127.0.0.1:{guarded_shop.port}", viewport=DESKTOP)
    yield opened
    opened.close()
    assert opened.faults == []


def log_in(visit: Visit, user: User) -> None:
    visit.page.get_by_label("Username").fill(user.username)
    visit.page.get_by_label("Password").fill(PASSWORD)
    visit.press("Log in")


def log_out(visit: Visit) -> None:
    """Log out, and return when the shop has heard of it: what is opened next is opened as nobody."""
    with visit.page.expect_response(lambda answer: answer.url.endswith("/admin/logout/")):
        visit.press("Log out")


def next_code(device: TOTPDevice) -> str:
    """Return a code that was not used yet, however slow the machine is: an hour off is taken, in this test only."""
    TOTPDevice.objects.filter(pk=device.pk).update(tolerance=120, drift=0)
    device.refresh_from_db()
    step = max(int(time.time() // STEP_SECONDS), device.last_t + 1)
    return code_of(device, at=step * STEP_SECONDS)


def paid_order(card: SaleCard) -> Order:
    (name,) = road.queue(card, "ann")
    wait_until(lambda: Order.objects.filter(request_id=name, state="held").exists(), what="the settler settles it")
    pay(name)
    return Order.objects.get(request_id=name)


def test_staff_enrol_log_in_with_a_code_and_give_the_password_again(
    browser_of_staff: Visit, open_sale: Callable[..., SaleCard]
) -> None:
    visit, page = browser_of_staff, browser_of_staff.page
    user = User.objects.create_superuser(f"olga-{token_hex(4)}", password=PASSWORD)
    order = paid_order(open_sale(units=1))
    visit.go("/admin/shop/order/")
    visit.check_page(preload=False)
    log_in(visit, user)
    visit.sees("Set up a second factor")
    expect(page.get_by_role("img", name="QR code")).to_be_visible()
    visit.check_page(preload=False)
    visit.picture("second-factor-enrol")
    page.get_by_role("textbox", name="Code").fill(next_code(authenticator_of(user, confirmed=False)))
    visit.press("Set up")
    visit.sees("shown now and never again")
    visit.check_page(preload=False)
    visit.picture("second-factor-codes")
    page.get_by_role("link", name="I have kept them").click()
    page.wait_for_url("**/admin/shop/order/")
    log_out(visit)

    visit.go("/admin/")
    log_in(visit, user)
    visit.sees("Type the code that your authenticator shows now")
    visit.check_page(preload=False)
    visit.picture("second-factor-code")
    page.get_by_role("textbox", name="Code").fill(next_code(authenticator_of(user)))
    visit.press("Log in")
    page.wait_for_url(INDEX)
    page.get_by_role("link", name="Second factor").click()
    visit.sees("8 recovery codes are left.")
    visit.check_page(preload=False)

    visit.go(f"/admin/shop/order/{order.pk}/refund/")
    page.get_by_label("Reason").fill("broken on arrival")
    page.get_by_label("Your password, again").fill("a guess")
    visit.press("Refund")
    visit.sees("This is not your password.")
    visit.check_page(preload=False)
    page.get_by_label("Your password, again").fill(PASSWORD)
    visit.press("Refund")
    page.wait_for_url(re.compile(rf"/order/{order.pk}/change/"))
    order.refresh_from_db()
    assert order.state == "refunded"
    acts = StaffAct.objects.filter(actor=user.username).order_by("id").values_list("act", flat=True)
    assert list(acts) == [
        "login", "enrolled", "logout", "login", "code_taken", "login_failed", "password_again", "refund_order",
    ]  # fmt: skip
