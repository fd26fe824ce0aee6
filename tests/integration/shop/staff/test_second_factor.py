"""Staff log in with a second factor: nothing opens before it, no code works twice, guesses end, and all of it is in the
log of acts. Real servers, the real admin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from secrets import token_hex
from typing import NamedTuple

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import caches
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from django_otp.plugins.otp_static.models import StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice

from shop.accounts import second_factor
from shop.models import StaffAct
from tests.support.second_factor import Clock, authenticator_of, code_of

PASSWORD = "a long and secret password"
KEY = "00112233445566778899aabbccddeeff00112233"
ADMIN, FACTOR, ENROL, LOGOUT = "/admin/", "/admin/second-factor/", "/admin/second-factor/enrol/", "/admin/logout/"


@pytest.fixture(autouse=True)
def required(shop_database: None) -> Iterator[None]:
    """As in production: the second factor is asked for. What failed before is forgotten."""
    caches["logins"].clear()
    # The strength of a hash is not what is looked at here.
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with override_settings(STAFF_SECOND_FACTOR=True, PASSWORD_HASHERS=hashers):
        yield
    caches["logins"].clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def user() -> User:
    return User.objects.create_superuser(f"olga-{token_hex(4)}", password=PASSWORD)


class Enrolled(NamedTuple):
    """Somebody who has set up the second factor, in the browser in which they did, with their recovery codes."""

    user: User
    browser: Client
    codes: list[str]


@pytest.fixture
def enrolled(user: User, clock: Clock) -> Enrolled:
    browser = with_password(user)
    browser.get(ENROL)
    # Always the same key: of random ones, two steps may by chance have the same code.
    TOTPDevice.objects.filter(user=user).update(key=KEY)
    shown = browser.post(ENROL, {"code": code_of(authenticator_of(user, confirmed=False), at=clock.now)})
    return Enrolled(user, browser, recovery_codes_on(shown.content.decode()))


def recovery_codes_on(page: str) -> list[str]:
    return re.findall(r"<li><code>([\d ]+)</code></li>", page)


def with_password(user: User) -> Client:
    """Return a browser in which `user` has given the password, and nothing else."""
    browser = Client()
    data = {"username": user.username, "password": PASSWORD, "next": ADMIN}
    assert browser.post("/admin/login/", data).status_code == 302
    return browser


def give(browser: Client, code: str) -> int:
    """Type a code; return the status: 302 for one that was taken."""
    return browser.post(FACTOR, {"code": code, "next": ADMIN}).status_code


def leads_to(browser: Client, path: str) -> str:
    """Return the page at which somebody who asks for `path` ends."""
    return browser.get(path, follow=True).request["PATH_INFO"]


def let_pause_end(user: User) -> None:
    """Make the last wrong code of `user` long ago."""
    TOTPDevice.objects.filter(user=user).update(throttling_failure_timestamp=timezone.now() - timedelta(days=365))


def acts_of(user: User) -> list[str]:
    return list(StaffAct.objects.filter(actor=user.username).order_by("id").values_list("act", flat=True))


def addresses(patterns: list[URLPattern | URLResolver] | None = None, *, prefix: str = "/") -> Iterator[str]:
    """Yield an address for every route of the shop, whatever it is for."""
    for each in patterns if patterns is not None else get_resolver().url_patterns:
        route = re.sub(r"<(?:int:)\w+>", "1", str(each.pattern))
        route = re.sub(r"\(\?P<\w+>.*?\)\$?|<[^>]+>", "x", route).strip("^$")
        if isinstance(each, URLResolver):
            yield from addresses(each.url_patterns, prefix=prefix + route)
        else:
            yield prefix + route


# Where the way in, and out, must stay open; test_passkeys.py shows what passkeys let half a login do.
OPEN = {"/admin/login/", LOGOUT, FACTOR, ENROL, f"{FACTOR}passkey/", f"{FACTOR}passkey/1/remove/"}


def test_the_walk_finds_the_pages_of_staff() -> None:
    """The control of the tests below: every kind of page is in the walk."""
    found = set(addresses())
    wanted = {ADMIN, "/admin/inventory/stock/live/", "/admin/shop/sale/1/room/live/", "/admin/shop/sale/1/room/x/"}
    wanted |= {"/admin/auth/user/", "/admin/jsi18n/", "/api/v1/sales/x/audit", "/api/v1/about", "/"} | OPEN
    assert wanted - found == set()


def test_half_logged_in_nothing_of_staff_opens(enrolled: Enrolled) -> None:
    """Somebody who has given only a password gets no more of any route than a stranger does."""
    half, stranger = with_password(enrolled.user), Client()
    for path in set(addresses()) - OPEN:
        for method in ("get", "post"):
            got, other = getattr(half, method)(path), getattr(stranger, method)(path)
            assert got.status_code == other.status_code, (method, path)
            if path.startswith(ADMIN):
                assert (got.status_code, got["Location"].startswith("/admin/login/?")) == (302, True), (method, path)


@pytest.mark.parametrize("path", [ADMIN, "/admin/inventory/stock/live/", "/admin/shop/sale/1/room/live/", "/admin/x/"])
def test_from_each_page_they_are_led_to_what_is_missing(enrolled: Enrolled, path: str) -> None:
    half = with_password(enrolled.user)
    assert leads_to(half, path) == leads_to(half, "/admin/login/") == leads_to(half, ENROL) == FACTOR
    second_factor.reset(enrolled.user)
    half = with_password(enrolled.user)
    assert leads_to(half, path) == leads_to(half, "/admin/login/") == leads_to(half, FACTOR) == ENROL


def test_with_a_code_all_of_it_opens(enrolled: Enrolled, clock: Clock) -> None:
    """The control: the same routes, one code later. What is not there is not found; nothing leads to the login."""
    clock.next_step()
    browser = with_password(enrolled.user)
    assert give(browser, code_of(authenticator_of(enrolled.user), at=clock.now)) == 302
    for path in set(addresses()) - OPEN:
        answer = browser.get(path)
        assert answer.status_code != 401, path
        assert "/admin/login/" not in answer.get("Location", ""), path
        assert FACTOR not in answer.get("Location", ""), path


@pytest.mark.parametrize("path", sorted({ADMIN, "/admin/inventory/stock/live/", "/api/v1/about"}))
def test_switched_off_by_name_the_password_is_enough(user: User, path: str) -> None:
    """The control is the setting alone."""
    browser = with_password(user)
    assert browser.get(path).status_code in (302, 401)
    with override_settings(STAFF_SECOND_FACTOR=False):
        assert browser.get(path).status_code == 200


def test_enrolling_shows_the_key_once_and_leads_on(user: User, clock: Clock) -> None:
    browser = with_password(user)
    page = browser.get("/admin/shop/order/", follow=True)
    text = page.content.decode()
    assert (page.request["PATH_INFO"], page["Cache-Control"].count("no-store")) == (ENROL, 1)
    assert "<svg" in text
    assert 'value="/admin/shop/order/"' in text
    draft = authenticator_of(user, confirmed=False)
    key = re.search(r'factor-key">(\w+)<', text)
    assert key
    assert key[1] in draft.config_url
    assert browser.post(ENROL, {"code": "000000x"}).status_code == 200
    shown = browser.post(ENROL, {"code": code_of(draft, at=clock.now), "next": "/admin/shop/order/"}).content.decode()
    assert 'href="/admin/shop/order/"' in shown
    codes = recovery_codes_on(shown)
    assert len(set(codes)) == second_factor.RECOVERY_CODES
    assert browser.get(ADMIN).status_code == 200
    # Kept only as digests.
    kept = set(StaticToken.objects.filter(device__user=user).values_list("token", flat=True))
    assert len(kept) == len(codes)
    assert not kept & {code.replace(" ", "")[:16] for code in codes}


def test_a_key_that_another_session_was_shown_is_not_enrolled(user: User, clock: Clock) -> None:
    """Somebody who knows the password looks at the key first, and waits for its owner to enrol it."""
    other, owner = with_password(user), with_password(user)
    other.get(ENROL)
    seen = authenticator_of(user, confirmed=False).key
    owner.get(ENROL)
    draft = authenticator_of(user, confirmed=False)
    assert draft.key != seen
    assert owner.post(ENROL, {"code": code_of(draft, at=clock.now)}).status_code == 200
    assert authenticator_of(user).key != seen


def test_nobody_replaces_an_authenticator_without_showing_it(enrolled: Enrolled, clock: Clock) -> None:
    half = with_password(enrolled.user)
    for answer in (half.get(ENROL), half.post(ENROL, {"code": "123456"})):
        assert answer["Location"].startswith(FACTOR)
    # The control: the browser that has shown it may, with the password once more.
    browser, before = enrolled.browser, authenticator_of(enrolled.user)
    browser.get(ENROL)
    code = code_of(authenticator_of(enrolled.user, confirmed=False), at=clock.now)
    for password in ("", "a guess"):
        assert not recovery_codes_on(browser.post(ENROL, {"code": code, "password": password}).content.decode())
    shown = browser.post(ENROL, {"code": code, "password": PASSWORD}).content.decode()
    assert len(recovery_codes_on(shown)) == second_factor.RECOVERY_CODES
    assert authenticator_of(enrolled.user).key != before.key
    assert browser.get(ADMIN).status_code == 200


@pytest.mark.parametrize(("steps", "is_taken"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_a_clock_may_be_one_step_off(enrolled: Enrolled, clock: Clock, steps: int, is_taken: bool) -> None:
    for _ in range(5):
        clock.next_step()
    code = code_of(authenticator_of(enrolled.user), at=clock.now + 30 * steps)
    assert (give(with_password(enrolled.user), code) == 302) == is_taken


def test_a_code_works_once(enrolled: Enrolled, clock: Clock) -> None:
    clock.next_step()
    code = code_of(authenticator_of(enrolled.user), at=clock.now)
    assert give(with_password(enrolled.user), code) == 302
    again = with_password(enrolled.user)
    assert give(again, code) == 200
    assert leads_to(again, ADMIN) == FACTOR
    # The control: the next code of the same authenticator.
    let_pause_end(enrolled.user)
    clock.next_step()
    assert give(again, code_of(authenticator_of(enrolled.user), at=clock.now)) == 302


def test_a_recovery_code_works_once_in_the_place_of_the_authenticator(enrolled: Enrolled) -> None:
    code = enrolled.codes[0]
    browser = with_password(enrolled.user)
    answer = browser.post(FACTOR, {"code": code, "next": ADMIN}, follow=True)
    assert f"{second_factor.RECOVERY_CODES - 1} recovery codes are left." in answer.content.decode()
    assert browser.get(ADMIN).status_code == 200
    again = with_password(enrolled.user)
    assert give(again, code) == 200
    assert leads_to(again, ADMIN) == FACTOR
    assert acts_of(enrolled.user)[-3:] == ["recovery_code_taken", "login", "code_failed"]


def test_new_recovery_codes_take_the_place_of_the_old_ones(enrolled: Enrolled) -> None:
    assert not recovery_codes_on(enrolled.browser.post(FACTOR).content.decode())  # without the password again
    shown = enrolled.browser.post(FACTOR, {"password": PASSWORD}).content.decode()
    new = recovery_codes_on(shown)
    assert not set(new) & set(enrolled.codes)
    half = with_password(enrolled.user)
    assert give(half, enrolled.codes[1]) == 200


def test_after_a_wrong_code_the_right_one_must_wait(enrolled: Enrolled, clock: Clock) -> None:
    """The pause doubles, and it is kept with the authenticator: another browser or address waits as well."""
    clock.next_step()
    right = code_of(authenticator_of(enrolled.user), at=clock.now)
    wrong = f"{(int(right) + 500_000) % 1_000_000:06d}"
    half = with_password(enrolled.user)
    TOTPDevice.objects.filter(user=enrolled.user).update(throttling_failure_count=20)
    TOTPDevice.objects.filter(user=enrolled.user).update(throttling_failure_timestamp=None)
    told = re.search(r"Wait (\d+) seconds", half.post(FACTOR, {"code": wrong}).content.decode())
    assert told
    assert 2**19 < int(told[1]) <= 2**20
    assert give(half, right) == 200
    assert give(with_password(enrolled.user), right) == 200
    # The control: once the pause is over the same code is taken.
    let_pause_end(enrolled.user)
    assert give(half, right) == 302


def test_many_wrong_codes_lock_like_wrong_passwords(enrolled: Enrolled) -> None:
    half = with_password(enrolled.user)
    statuses = [give(half, "not one") for _ in range(settings.AXES_FAILURE_LIMIT)]
    assert statuses == [200] * (settings.AXES_FAILURE_LIMIT - 1) + [429]
    assert give(half, enrolled.codes[2]) == 429
    # The control: as soon as the lock is over.
    caches["logins"].clear()
    assert give(half, enrolled.codes[2]) == 302


def test_the_key_of_the_session_changes_with_the_second_factor(enrolled: Enrolled) -> None:
    half = with_password(enrolled.user)
    before = half.cookies[settings.SESSION_COOKIE_NAME].value
    assert give(half, enrolled.codes[3]) == 302
    assert half.cookies[settings.SESSION_COOKIE_NAME].value != before


def test_the_password_once_more_does_not_renew_what_a_code_had_opened(enrolled: Enrolled) -> None:
    assert enrolled.browser.get(ADMIN).status_code == 200
    key = enrolled.browser.session.session_key
    enrolled.browser.post("/admin/login/", {"username": enrolled.user.username, "password": PASSWORD, "next": ADMIN})
    assert enrolled.browser.session.session_key != key
    assert leads_to(enrolled.browser, ADMIN) == FACTOR


def test_an_operator_resets_a_lost_device(enrolled: Enrolled) -> None:
    """Every session of the account ends: one on a lost phone could set up the next authenticator."""
    out = StringIO()
    call_command("second_factor", "list", stdout=out)
    assert f"{enrolled.user.username}: set up" in out.getvalue()
    assert enrolled.browser.get(ADMIN).status_code == 200
    why = ("--reason", "phone lost", "--actor", "ivan")
    call_command("second_factor", "reset", enrolled.user.username, *why, stdout=out)
    assert leads_to(enrolled.browser, ADMIN).startswith("/admin/login/")
    act = StaffAct.objects.filter(actor=enrolled.user.username).first()
    assert act
    assert (act.act, act.detail) == ("second_factor_reset", "by ivan: phone lost")
    assert leads_to(with_password(enrolled.user), ADMIN) == ENROL
    for name in (enrolled.user.username, "nobody-of-that-name"):
        with pytest.raises(CommandError):
            call_command("second_factor", "reset", name, "--reason", "again", stdout=out)


def test_a_half_logged_in_person_may_leave(user: User) -> None:
    half = with_password(user)
    assert half.post(LOGOUT).status_code == 200
    assert leads_to(half, ADMIN) == "/admin/login/"


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_it_leads_to_no_other_host(enrolled: Enrolled, wanted: str) -> None:
    answer = with_password(enrolled.user).post(FACTOR, {"code": enrolled.codes[4], "next": wanted})
    assert (answer.status_code, answer["Location"]) == (302, ADMIN)


def test_keys_and_codes_are_nobodys_to_read(enrolled: Enrolled) -> None:
    for path in ("otp_totp/totpdevice/", "otp_static/staticdevice/"):
        assert enrolled.browser.get(f"/admin/{path}").status_code == 404


def test_its_pages_speak_chinese_too(user: User) -> None:
    browser = with_password(user)
    browser.defaults["HTTP_ACCEPT_LANGUAGE"] = "zh-CN"
    page = browser.get(ENROL).content.decode()
    assert 'lang="zh-hans"' in page
    assert "设置双重验证" in page
    assert "Set up" not in page


def test_every_step_of_a_login_is_in_the_log_of_acts(user: User, clock: Clock) -> None:
    """From where, too. What somebody typed as a name is kept only if it is one."""
    password_as_name = f"{PASSWORD}-{token_hex(8)}"
    for name in (user.username, password_as_name):
        Client().post("/admin/login/", {"username": name, "password": "a guess"}, REMOTE_ADDR="192.0.2.7")
    assert not StaffAct.objects.filter(actor=password_as_name).exists()
    assert StaffAct.objects.filter(act="login_failed", actor="", detail="no such account; from 192.0.2.7").exists()
    browser = with_password(user)
    browser.get(ENROL)
    browser.post(ENROL, {"code": "123"})
    browser.post(ENROL, {"code": code_of(authenticator_of(user, confirmed=False), at=clock.now)})
    browser.post(FACTOR, {"password": PASSWORD})
    browser.post(LOGOUT)
    assert give(half := with_password(user), "not one") == 200
    clock.next_step()
    assert give(half, code_of(authenticator_of(user), at=clock.now)) == 302
    assert acts_of(user) == [
        "login_failed", "login", "code_failed", "enrolled", "password_again", "new_recovery_codes", "logout",
        "login", "code_failed", "code_taken",
    ]  # fmt: skip
    assert StaffAct.objects.filter(actor=user.username, act="login_failed", detail="from 192.0.2.7").exists()


def test_a_new_password_is_in_the_log(enrolled: Enrolled) -> None:
    new = f"another-{token_hex(8)}"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert enrolled.browser.post("/admin/password_change/", form | {"old_password": "a guess"}).status_code == 200
    assert acts_of(enrolled.user)[-2:] == ["enrolled", "login_failed"]
    assert enrolled.browser.post("/admin/password_change/", form).status_code == 302
    assert acts_of(enrolled.user)[-2:] == ["password_again", "password_changed"]


def test_guesses_at_the_old_password_are_counted_as_any(enrolled: Enrolled) -> None:
    """A form whose new passwords differ would say of any number of guesses whether they are right."""
    guess = {"new_password1": "one", "new_password2": "another"}
    found = [
        enrolled.browser.post("/admin/password_change/", guess | {"old_password": f"guess {number}"}).status_code
        for number in range(settings.AXES_FAILURE_LIMIT + 1)
    ]
    assert found == [200] * (settings.AXES_FAILURE_LIMIT - 1) + [429] * 2
    new = f"another-{token_hex(8)}"
    right = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert enrolled.browser.post("/admin/password_change/", right).status_code == 429
    enrolled.user.refresh_from_db()
    assert enrolled.user.check_password(PASSWORD)


def test_an_account_that_is_no_staff_is_in_the_log_too(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_staff=False)
    answer = Client().post("/admin/login/", {"username": user.username, "password": PASSWORD})
    assert answer.status_code == 200
    assert acts_of(user) == ["login_failed"]


def test_guesses_while_an_account_is_locked_do_not_fill_the_log(user: User) -> None:
    for _ in range(settings.AXES_FAILURE_LIMIT + 5):
        Client().post("/admin/login/", {"username": user.username, "password": "a guess"})
    assert acts_of(user) == ["login_failed"] * settings.AXES_FAILURE_LIMIT


def test_what_forms_of_the_admin_do_is_in_the_log(enrolled: Enrolled, new_sku: Callable[[], str]) -> None:
    name = f"role-{token_hex(4)}"
    enrolled.browser.post("/admin/auth/group/add/", {"asked_again": "1", "password": PASSWORD})
    enrolled.browser.post("/admin/auth/group/add/", {"name": name})
    found = StaffAct.objects.filter(actor=enrolled.user.username, act="form").first()
    assert found
    assert "group: " in found.detail
    assert name in found.detail
    assert "delete_selected" not in enrolled.browser.get("/admin/auth/group/").content.decode()
