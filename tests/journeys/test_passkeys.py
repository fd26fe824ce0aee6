"""A member of staff in a real browser sets up a passkey, logs out and logs in with it, with the authenticator that
Chromium has for tests. An answer of another authenticator, of another page or of before is refused.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from playwright.sync_api import Browser, CDPSession, Request, expect

from shop.models import StaffAct
from shop.passkeys.models import Passkey
from tests.journeys.visits import DESKTOP, Visit
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, running_process
from tests.support.waiting import wait_until
from workers.embedded.server import free_port

PASSWORD = "a long and secret password"
# Not a page that only leads there (?next=/admin/).
INDEX = re.compile(r"^[^?]*/admin/$")
FACTOR, ADD = "/admin/second-factor/", "/admin/second-factor/passkey/"
ASK = """async (options) => JSON.stringify(await navigator.credentials.get({
  publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(JSON.parse(options)) }))"""

MAKE_KEY = """async () => {
  const pair = await crypto.subtle.generateKey({name: "ECDSA", namedCurve: "P-256"}, true, ["sign"]);
  return btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.exportKey("pkcs8", pair.privateKey)))); }"""


@pytest.fixture
def named_shop(process_environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """A web process that knows its own address, asks staff for a second factor, and is reached as localhost."""
    caches["logins"].clear()
    port = free_port()
    root = f"http://localhost:{port}"
    environment = {**process_environment, "FAIRDROP_STAFF_SECOND_FACTOR": "true", "FAIRDROP_PUBLIC_URL": root}
    command = [sys.executable, *program_with(PATIENT_WEB), "run_web", "--port", str(port)]
    with running_process("web", command, environment=environment, folder=tmp_path) as child:
        caller = Caller(port)

        def serves() -> bool:
            assert child.running, (tmp_path / "web.log").read_text()
            try:
                return caller.get("/healthz", timeout_seconds=1).status == 200
            except OSError:
                return False

        wait_until(serves, what="the web process serves")
        yield root


@pytest.fixture
def staff_browser(chromium: Browser, named_shop: str) -> Iterator[Visit]:
    opened = Visit.open(chromium, named_shop, viewport=DESKTOP)
    yield opened
    opened.close()
    assert opened.faults == []


def plug_in(devtools: CDPSession, *, transport: str = "internal") -> str:
    """Give the browser an authenticator that verifies its owner; return its id. It has one internal one at most."""
    terms = {
        "protocol": "ctap2", "transport": transport, "hasResidentKey": True, "hasUserVerification": True,
        "isUserVerified": True, "automaticPresenceSimulation": True,
    }  # fmt: skip
    made: dict[str, str] = devtools.send("WebAuthn.addVirtualAuthenticator", {"options": terms})
    return made["authenticatorId"]


def with_authenticators(visit: Visit) -> CDPSession:
    devtools = visit.context.new_cdp_session(visit.page)
    devtools.send("WebAuthn.enable")
    return devtools


def log_in(visit: Visit, user: User) -> None:
    visit.go("/admin/")
    visit.page.get_by_label("Username").fill(user.username)
    visit.page.get_by_label("Password").fill(PASSWORD)
    visit.press("Log in")


def log_out(visit: Visit) -> None:
    """Log out, and return when the shop has heard of it: what is opened next is opened as nobody."""
    with visit.page.expect_response(lambda answer: answer.url.endswith("/admin/logout/")):
        visit.press("Log out")


def set_up(visit: Visit, *, name: str) -> None:
    visit.page.get_by_label("Name of the passkey").fill(name)
    visit.press("Set up a passkey")


def look(visit: Visit, name: str) -> None:
    """Check a page and keep pictures of it."""
    visit.check_page(preload=False)
    visit.picture(name)


def acts_of(user: User) -> list[str]:
    return list(StaffAct.objects.filter(actor=user.username).order_by("id").values_list("act", flat=True))


def test_staff_set_up_a_passkey_and_log_in_with_it(staff_browser: Visit) -> None:
    visit, page = staff_browser, staff_browser.page
    user = User.objects.create_superuser(f"olga-{token_hex(4)}", password=PASSWORD)
    devtools = with_authenticators(visit)
    plug_in(devtools)
    log_in(visit, user)
    visit.sees("Set up a second factor")
    look(visit, "passkey-enrol")
    page.get_by_role("link", name="Set up a passkey").click()
    look(visit, "passkey-new")
    set_up(visit, name="Olga's phone")
    visit.sees("shown now and never again")
    page.get_by_role("link", name="I have kept them").click()
    page.wait_for_url(INDEX)
    log_out(visit)

    log_in(visit, user)
    visit.sees("Show a passkey, or type a code below.")
    look(visit, "passkey-login")
    visit.press("Use a passkey")
    page.wait_for_url(INDEX)
    visit.go(FACTOR)
    visit.sees("Olga's phone")

    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_label("Your password, again").fill(PASSWORD)
    visit.press("Continue")
    plug_in(devtools, transport="usb")  # the first one has a passkey of this account, and no browser makes two
    set_up(visit, name="The key in the safe")
    visit.sees("The passkey The key in the safe was added.")
    look(visit, "passkey-list")
    page.get_by_role("link", name="Remove The key in the safe").click()
    look(visit, "passkey-remove")
    visit.press("Remove")
    expect(page.get_by_role("link", name="Remove Olga's phone")).to_be_visible()
    assert [each.name for each in Passkey.objects.filter(user=user)] == ["Olga's phone"]
    assert acts_of(user) == [
        "login", "passkey_added", "logout", "login", "passkey_taken", "password_again", "passkey_added",
        "passkey_removed",
    ]  # fmt: skip


def send(visit: Visit, answer: str) -> None:
    """Send an answer as the page's own script does."""
    visit.page.evaluate(
        "(answer) => { const form = document.querySelector('[data-passkey]');"
        " form.elements.credential.value = answer; form.submit(); }",
        answer,
    )


def logged_out_with_a_passkey(visit: Visit) -> tuple[User, CDPSession, str]:
    """Set up a passkey for somebody new, and begin to log in again; return them, their devtools and authenticator."""
    user = User.objects.create_superuser(f"olga-{token_hex(4)}", password=PASSWORD)
    devtools = with_authenticators(visit)
    own = plug_in(devtools)
    log_in(visit, user)
    visit.page.get_by_role("link", name="Set up a passkey").click()
    set_up(visit, name="mine")
    visit.sees("shown now and never again")
    visit.go("/admin/")
    log_out(visit)
    log_in(visit, user)
    visit.sees("Show a passkey, or type a code below.")
    return user, devtools, own


def swap(devtools: CDPSession, authenticator: str, old: dict[str, str], new: dict[str, str] | None) -> None:
    """Take a passkey out of an authenticator, and put another one in."""
    named = {"authenticatorId": authenticator, "credentialId": old["credentialId"]}
    devtools.send("WebAuthn.removeCredential", named)
    if new is not None:
        devtools.send("WebAuthn.addCredential", {"authenticatorId": authenticator, "credential": new})


def kept_in(devtools: CDPSession, authenticator: str) -> dict[str, str]:
    (kept,) = devtools.send("WebAuthn.getCredentials", {"authenticatorId": authenticator})["credentials"]
    found: dict[str, str] = kept
    return found


def test_another_authenticator_is_refused(staff_browser: Visit) -> None:
    visit, page = staff_browser, staff_browser.page
    user, devtools, own = logged_out_with_a_passkey(visit)
    kept = kept_in(devtools, own)
    # One that knows nothing of the account: the browser itself says no, and the page says so.
    swap(devtools, own, kept, None)
    visit.press("Use a passkey")
    visit.sees("The browser gave no passkey. Try again.")
    # One that claims the same passkey, with a key of its own.
    key = page.evaluate(MAKE_KEY)
    forged = {**kept, "privateKey": key, "signCount": 50}
    devtools.send("WebAuthn.addCredential", {"authenticatorId": own, "credential": forged})
    visit.press("Use a passkey")
    visit.sees("This passkey was not taken. Try again.")
    look(visit, "passkey-refused")
    swap(devtools, own, forged, kept)  # the control
    visit.press("Use a passkey")
    page.wait_for_url(INDEX)
    assert acts_of(user)[-2:] == ["passkey_failed", "passkey_taken"]


def test_what_another_page_was_given_is_refused(staff_browser: Visit) -> None:
    """A page of the same host, to which the browser gives its passkeys, asks with the challenge of this login."""
    visit = staff_browser
    user, devtools, own = logged_out_with_a_passkey(visit)
    options = visit.page.locator("[data-passkey]").get_attribute("data-options")
    other = visit.context.new_page()
    other.route("http://localhost:9/**", lambda route: route.fulfill(body="<p>", content_type="text/html"))
    other.goto("http://localhost:9/")
    there = visit.context.new_cdp_session(other)
    there.send("WebAuthn.enable")
    copy = {**kept_in(devtools, own), "signCount": 70}
    there.send("WebAuthn.addCredential", {"authenticatorId": plug_in(there), "credential": copy})
    given = other.evaluate(ASK, options)
    assert json.loads(given)["id"]
    other.close()
    send(visit, given)
    visit.sees("This passkey was not taken. Try again.")
    visit.press("Use a passkey")  # the control
    visit.page.wait_for_url(INDEX)
    assert acts_of(user)[-2:] == ["passkey_failed", "passkey_taken"]


def test_an_answer_that_was_taken_is_refused_from_then_on(staff_browser: Visit) -> None:
    visit, page = staff_browser, staff_browser.page
    user, _, _ = logged_out_with_a_passkey(visit)
    taken: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST" and FACTOR in request.url and request.post_data_json:
            taken.append(request.post_data_json["credential"])

    page.on("request", note)
    visit.press("Use a passkey")
    page.wait_for_url(INDEX)
    log_out(visit)
    log_in(visit, user)
    visit.sees("Show a passkey, or type a code below.")
    send(visit, taken[0])
    visit.sees("This passkey was not taken. Try again.")
    visit.press("Use a passkey")  # the control: the same authenticator, asked now
    page.wait_for_url(INDEX)
    assert acts_of(user)[-2:] == ["passkey_failed", "passkey_taken"]
