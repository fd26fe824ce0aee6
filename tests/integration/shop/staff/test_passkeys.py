"""Staff log in with a passkey: every answer of a browser that is not this shop's, not of now, not of this session or
not its owner's is refused; and all of it is in the log of acts. Real servers, the real admin.
"""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator
from io import StringIO
from secrets import token_hex
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import caches
from django.core.management import call_command
from django.test import Client, override_settings
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shop.accounts import second_factor, sessions
from shop.models import StaffAct
from shop.passkeys import ceremonies
from shop.passkeys.models import Passkey
from tests.support.passkeys import Authenticator
from tests.support.second_factor import Clock, authenticator_of, code_of

PASSWORD = "a long and secret password"
ORIGIN, HOST = "https://shop.example:8443", "shop.example"
ADMIN, FACTOR, ENROL = "/admin/", "/admin/second-factor/", "/admin/second-factor/enrol/"
ADD = "/admin/second-factor/passkey/"


@pytest.fixture(autouse=True)
def required(shop_database: None) -> Iterator[None]:
    caches["logins"].clear()
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with override_settings(STAFF_SECOND_FACTOR=True, PASSWORD_HASHERS=hashers, PUBLIC_URL=ORIGIN):
        yield
    caches["logins"].clear()


def new_user() -> User:
    return User.objects.create_superuser(f"olga-{token_hex(4)}", password=PASSWORD)


def with_password(user: User, **headers: Any) -> Client:
    """Return a browser in which `user` has given the password, and nothing else."""
    browser = Client(**headers)
    assert browser.post("/admin/login/", {"username": user.username, "password": PASSWORD}).status_code == 302
    return browser


def options_on(browser: Client, path: str) -> dict[str, Any]:
    """Return what a page gives to the script, with a challenge of now."""
    found = re.search(r'data-options="([^"]*)"', browser.get(path).content.decode())
    assert found, path
    options: dict[str, Any] = json.loads(html.unescape(found[1]))
    return options


def fresh(browser: Client) -> None:
    """Give the password again, a moment ago."""
    session = browser.session
    session[sessions.PASSWORD_AT] = time.time() + 3600  # however slow the test is
    session.save()


def set_up(browser: Client, *, name: str = "my key") -> Authenticator:
    """Set up a passkey in `browser`."""
    authenticator = Authenticator(ORIGIN)
    answer = authenticator.create(options_on(browser, ADD))
    before = Passkey.objects.count()
    browser.post(ADD, {"name": name, "credential": answer})
    assert Passkey.objects.count() == before + 1
    return authenticator


def give(browser: Client, answer: str) -> int:
    """Show a passkey; return the status: 302 for one that was taken."""
    return browser.post(FACTOR, {"credential": answer, "next": ADMIN}).status_code


def is_in(browser: Client) -> bool:
    return browser.get(ADMIN).status_code == 200


def acts_of(user: User) -> list[tuple[str, str]]:
    return list(StaffAct.objects.filter(actor=user.username).order_by("id").values_list("act", "detail"))


def test_the_first_passkey_of_an_account_opens_all_and_comes_with_recovery_codes() -> None:
    user = new_user()
    browser = with_password(user)
    assert f'href="{ADD}?next=' in browser.get(ENROL).content.decode()
    options = options_on(browser, ADD)
    assert (options["rp"]["id"], options["authenticatorSelection"]["userVerification"]) == (HOST, "required")
    answer = Authenticator(ORIGIN).create(options)
    shown = browser.post(ADD, {"name": "my key", "credential": answer, "next": "/admin/shop/order/"}).content.decode()
    assert len(re.findall(r"<li><code>([\d ]+)</code></li>", shown)) == second_factor.RECOVERY_CODES
    assert 'href="/admin/shop/order/"' in shown
    assert is_in(browser)
    assert [act for act, _ in acts_of(user)] == ["login", "passkey_added"]


def test_a_passkey_lets_its_owner_in_under_a_new_key_of_the_session() -> None:
    user = new_user()
    authenticator = set_up(with_password(user))
    half = with_password(user)
    assert not is_in(half)
    before = half.cookies[settings.SESSION_COOKIE_NAME].value
    assert give(half, authenticator.show(options_on(half, FACTOR))) == 302
    assert is_in(half)
    assert half.cookies[settings.SESSION_COOKIE_NAME].value != before
    assert acts_of(user)[-1] == ("passkey_taken", "my key; from 127.0.0.1")
    passkey = Passkey.objects.get(user=user)
    assert (passkey.sign_count, passkey.used_at is not None) == (1, True)


WRONG: dict[str, dict[str, Any]] = {
    "another origin": {"origin": "https://evil.example"},
    "another port": {"origin": "https://shop.example"},
    "without TLS": {"origin": "http://shop.example:8443"},
    "another shop's name": {"rp_id": "example"},
    "another challenge": {"challenge": "AAAA"},
    "another ceremony": {"type": "webauthn.other"},
    "no challenge": {"challenge": None},
    "nobody verified": {"verifies": False},
}


@pytest.mark.parametrize("what", WRONG)
def test_an_answer_that_is_wrong_in_one_thing_sets_nothing_up(what: str) -> None:
    wrong = dict(WRONG[what])
    user = new_user()
    browser = with_password(user)
    authenticator = Authenticator(ORIGIN, verifies=wrong.pop("verifies", True))
    answer = authenticator.create(options_on(browser, ADD), **wrong)
    assert browser.post(ADD, {"name": "my key", "credential": answer}).status_code == 200
    assert not Passkey.objects.filter(user=user).exists()
    set_up(browser)  # the control: the same browser, everything right


@pytest.mark.parametrize("what", WRONG)
def test_an_answer_that_is_wrong_in_one_thing_lets_nobody_in(what: str) -> None:
    wrong = dict(WRONG[what])
    user = new_user()
    authenticator = set_up(with_password(user))
    half = with_password(user)
    authenticator.verifies = wrong.pop("verifies", True)
    assert give(half, authenticator.show(options_on(half, FACTOR), **wrong)) == 200
    assert not is_in(half)
    assert acts_of(user)[-1][0] == "passkey_failed"
    authenticator.verifies = True  # the control
    assert give(half, authenticator.show(options_on(half, FACTOR))) == 302


def test_another_key_another_authenticator_and_somebody_elses_passkey_are_refused() -> None:
    user, other = new_user(), new_user()
    right, others = set_up(with_password(user)), set_up(with_password(other))
    half = with_password(user)
    forged = Authenticator(ORIGIN, credential_id=right.credential_id, count=7)
    for wrong in (forged, Authenticator(ORIGIN), others):
        assert give(half, wrong.show(options_on(half, FACTOR))) == 200
    assert not is_in(half)
    half = with_password(other)
    assert give(half, others.show(options_on(half, FACTOR))) == 302  # the control


def test_an_answer_is_taken_once_and_in_its_own_session() -> None:
    user = new_user()
    authenticator = set_up(with_password(user))
    half, other = with_password(user), with_password(user)
    answer = authenticator.show(options_on(half, FACTOR))
    options_on(other, FACTOR)
    assert [give(other, answer), give(half, answer), give(half, answer)] == [200, 302, 200]
    assert (is_in(other), is_in(half)) == (False, True)


def test_of_one_challenge_that_two_requests_have_read_only_one_is_taken() -> None:
    """An authenticator that does not count: nothing but the challenge tells the second answer from the first."""
    user = new_user()
    authenticator = set_up(with_password(user))
    half = with_password(user)
    answer = authenticator.show(options_on(half, FACTOR), counts=False)
    first, second = half.session, half.session
    assert ceremonies.check(user, first, answer=answer)
    assert ceremonies.check(user, second, answer=answer) is None


def test_a_challenge_ends() -> None:
    user = new_user()
    authenticator = set_up(with_password(user))
    half = with_password(user)
    answer = authenticator.show(options_on(half, FACTOR))
    session = half.session
    challenge, made_at = session[ceremonies.Ceremony.SHOW]
    session[ceremonies.Ceremony.SHOW] = [challenge, made_at - ceremonies.MAX_CHALLENGE_SECONDS]
    session.save()
    assert give(half, answer) == 200
    assert give(half, authenticator.show(options_on(half, FACTOR))) == 302


def test_a_count_that_does_not_grow_is_a_copy_and_refused() -> None:
    user = new_user()
    authenticator = set_up(with_password(user))
    half = with_password(user)
    authenticator.count = 5
    assert give(half, authenticator.show(options_on(half, FACTOR), counts=False)) == 302
    copy = with_password(user)
    for count, status in ((5, 200), (4, 200), (0, 200), (6, 302)):
        authenticator.count = count
        assert give(copy, authenticator.show(options_on(copy, FACTOR), counts=False)) == status
    assert Passkey.objects.get(user=user).sign_count == 6


def test_the_name_of_the_shop_is_that_of_the_setting_whatever_host_is_asked() -> None:
    user = new_user()
    browser = with_password(user, headers={"host": "localhost"})
    assert options_on(browser, ADD)["rp"]["id"] == HOST
    answer = Authenticator("http://localhost").create(options_on(browser, ADD), rp_id="localhost")
    assert browser.post(ADD, {"name": "my key", "credential": answer}).status_code == 200
    assert not Passkey.objects.filter(user=user).exists()
    set_up(browser)


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:8000", "http://[::1]:8000"])
def test_without_a_name_no_passkey_is_offered(url: str) -> None:
    user = new_user()
    browser = with_password(user)
    with override_settings(PUBLIC_URL=url):
        assert ADD not in browser.get(ENROL).content.decode()
        assert browser.get(ADD).status_code == 302
        assert browser.post(ADD, {"name": "x", "credential": "{}"}).status_code == 302
    assert ADD in browser.get(ENROL).content.decode()


def test_several_are_listed_and_removed_one_by_one_but_never_the_last_way_in() -> None:
    user = new_user()
    browser = with_password(user)
    set_up(browser, name="first")
    asked = browser.get(ADD).content.decode()
    assert "data-options" not in asked
    assert browser.post(ADD, {"password": "a guess"}).status_code == 200
    assert browser.post(ADD, {"password": PASSWORD})["Location"].startswith(ADD)
    set_up(browser, name="second <b>")
    page = browser.get(FACTOR).content.decode()
    assert "first" in page
    assert "second &lt;b&gt;" in page
    first, second = Passkey.objects.filter(user=user)
    session = browser.session
    del session[sessions.PASSWORD_AT]
    session.save()
    remove = f"{ADD}{second.pk}/remove/"
    for data in ({}, {"password": "a guess"}):
        assert browser.post(remove, data).status_code == 200
    assert browser.post(remove, {"password": PASSWORD}).status_code == 302
    assert "only second factor" in browser.post(f"{ADD}{first.pk}/remove/").content.decode()
    assert list(Passkey.objects.filter(user=user)) == [first]
    removed = [detail for act, detail in acts_of(user) if act == "passkey_removed"]
    assert removed == ["second <b>; from 127.0.0.1"]


def test_a_passkey_that_was_removed_opens_nothing_any_more() -> None:
    user = new_user()
    browser = with_password(user)
    lost = set_up(browser, name="lost")
    fresh(browser)
    set_up(browser, name="kept")
    on_lost = with_password(user)
    assert give(on_lost, lost.show(options_on(on_lost, FACTOR))) == 302
    half = with_password(user)
    options = options_on(half, FACTOR)
    assert browser.post(f"{ADD}{Passkey.objects.get(user=user, name='lost').pk}/remove/").status_code == 302
    assert not is_in(on_lost)
    assert give(half, lost.show(options)) == 200


def test_nobody_adds_or_removes_one_before_a_second_factor_was_shown() -> None:
    user, other = new_user(), new_user()
    authenticator = set_up(with_password(user))
    half = with_password(user)
    fresh(half)
    passkey = Passkey.objects.get(user=user)
    assert half.get(ADD)["Location"].startswith(FACTOR)
    answer = Authenticator(ORIGIN).create({"rp": {"id": HOST}, "challenge": options_on(half, FACTOR)["challenge"]})
    for path in (ADD, f"{ADD}{passkey.pk}/remove/"):
        assert half.post(path, {"name": "x", "credential": answer})["Location"].startswith(FACTOR)
    stranger = with_password(other)
    set_up(stranger)
    fresh(stranger)
    assert stranger.post(f"{ADD}{passkey.pk}/remove/").status_code == 404
    assert list(Passkey.objects.filter(user=user)) == [passkey]
    assert give(half, authenticator.show(options_on(half, FACTOR))) == 302


def test_a_passkey_that_somebody_has_is_not_set_up_twice() -> None:
    user, other = new_user(), new_user()
    authenticator = set_up(with_password(user))
    browser = with_password(other)
    assert (
        browser.post(ADD, {"name": "x", "credential": authenticator.create(options_on(browser, ADD))}).status_code
        == 200
    )
    assert not Passkey.objects.filter(user=other).exists()


def test_an_authenticator_and_a_passkey_stand_alongside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, user = Clock(monkeypatch), new_user()
    browser = with_password(user)
    passkey = set_up(browser)
    fresh(browser)
    browser.get(ENROL)
    browser.post(ENROL, {"code": code_of(authenticator_of(user, confirmed=False), at=clock.now)})
    half = with_password(user)
    assert give(half, passkey.show(options_on(half, FACTOR))) == 302
    clock.next_step()
    half = with_password(user)
    code = code_of(authenticator_of(user), at=clock.now)
    assert half.post(FACTOR, {"code": code, "next": ADMIN}).status_code == 302
    fresh(half)
    assert half.post(f"{ADD}{Passkey.objects.get(user=user).pk}/remove/").status_code == 302
    assert is_in(half)


def test_many_refused_passkeys_lock_like_wrong_passwords() -> None:
    user = new_user()
    authenticator = set_up(with_password(user))
    half = with_password(user)
    statuses = [give(half, "not one") for _ in range(settings.AXES_FAILURE_LIMIT)]
    assert statuses == [200] * (settings.AXES_FAILURE_LIMIT - 1) + [429]
    caches["logins"].clear()
    answer = authenticator.show(options_on(half, FACTOR))
    assert give(half, answer) == 302


def test_an_operator_lists_and_resets_passkeys_too() -> None:
    user, out = new_user(), StringIO()
    browser = with_password(user)
    set_up(browser)
    call_command("second_factor", "list", stdout=out)
    assert f"{user.username}: set up (passkeys: 1)" in out.getvalue()
    call_command("second_factor", "reset", user.username, "--reason", "phone lost", "--actor", "ivan", stdout=out)
    assert not Passkey.objects.filter(user=user).exists()
    assert not is_in(browser)
    assert acts_of(user)[-1] == ("second_factor_reset", "by ivan: phone lost")


JSONS = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.sampled_from(["public-key", "AAAA", "e30"]),
    lambda inner: st.dictionaries(
        st.sampled_from(["id", "rawId", "type", "response", "clientDataJSON", "attestationObject", "signature"]), inner
    ),
    max_leaves=8,
).map(json.dumps)


@hypothesis_settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(answer=st.text(max_size=40) | JSONS)
def test_what_is_no_answer_at_all_is_refused(answer: str) -> None:
    user = User.objects.filter(username="olga-of-the-answers").first()
    user = user or User.objects.create_superuser("olga-of-the-answers", password=PASSWORD)
    session = Client().session
    ceremonies.creation_options(user, session)
    assert ceremonies.create(user, session, answer=answer, name="x") is None
    ceremonies.request_options(user, session)
    assert ceremonies.check(user, session, answer=answer) is None


def test_its_pages_speak_chinese_too() -> None:
    browser = with_password(new_user(), headers={"accept-language": "zh-CN"})
    pages = [browser.get(ENROL).content.decode(), browser.get(ADD).content.decode()]
    set_up(browser)
    pages.append(browser.get(FACTOR).content.decode())
    for page in pages:
        assert "通行密钥" in page
        assert not re.search(r">[^<]*\b(passkey|Passkey|Back|Remove)\b", page)
