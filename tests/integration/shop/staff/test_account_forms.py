"""A session that was left open on a desk decides neither who may log in, nor what they may do. No page shows a mail.
Uses the real servers.
"""

from __future__ import annotations

from secrets import token_hex

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from post_office.models import Email

from shop.accounts import sessions
from tests.support.staff import browser_of, new_user

pytestmark = pytest.mark.usefixtures("shop_database")
PASSWORD = f"The-right-one-{token_hex(8)}"


@pytest.fixture
def left_open() -> Client:
    """The browser of a superuser who has logged in, and has not given the password again."""
    user = new_user()
    user.set_password(PASSWORD)
    user.save()
    browser = browser_of(user=user)
    session = browser.session
    del session[sessions.PASSWORD_AT]
    session.save()
    return browser


def test_a_password_is_set_after_the_own_one_was_given_again(left_open: Client) -> None:
    person, new = new_user("viewer"), f"Another-{token_hex(8)}"
    path = reverse("admin:auth_user_password_change", args=[person.pk])
    form = {"usable_password": "true", "password1": new, "password2": new}
    asked = left_open.post(path, form)
    assert (asked.status_code, b"Your password, again" in asked.content) == (200, True)
    assert b"Nothing was saved" in asked.content
    person.refresh_from_db()
    assert not person.check_password(new)
    wrong = left_open.post(path, {"asked_again": "1", "password": "a guess"})
    assert (wrong.status_code, b"This is not your password." in wrong.content) == (200, True)
    right = left_open.post(path, {"asked_again": "1", "password": PASSWORD})
    assert (right.status_code, right["Location"]) == (302, path)
    # Sent twice, it is no form of that page.
    assert left_open.post(path, {"asked_again": "1", "password": PASSWORD}).status_code == 302
    # The control: now it is set.
    assert left_open.post(path, form).status_code == 302
    person.refresh_from_db()
    assert person.check_password(new)


def test_the_forms_of_accounts_and_roles_ask_for_it_too(left_open: Client) -> None:
    name, word = f"intruder-{token_hex(4)}", f"Long-and-{token_hex(8)}"
    form = {"username": name, "usable_password": "true", "password1": word, "password2": word}
    person, role = new_user("viewer"), Group.objects.get(name="viewer")
    paths = [
        reverse("admin:auth_user_add"),
        reverse("admin:auth_user_change", args=[person.pk]),
        reverse("admin:auth_group_change", args=[role.pk]),
        reverse("admin:auth_user_delete", args=[person.pk]),
        reverse("admin:auth_group_delete", args=[role.pk]),
    ]
    for path in paths:
        assert b"Your password, again" in left_open.get(path).content
        assert b"Your password, again" in left_open.post(path, form | {"name": "viewer", "post": "yes"}).content
    assert User.objects.filter(pk=person.pk).exists()
    assert not User.objects.filter(username=name).exists()
    # The control: given once, none of them asks.
    left_open.post(paths[0], {"asked_again": "1", "password": PASSWORD})
    assert all(b"Your password, again" not in left_open.get(path).content for path in paths)
    assert left_open.post(paths[0], form).status_code == 302
    assert User.objects.filter(username=name).exists()


def test_what_was_filled_in_is_kept_while_the_password_is_asked_for(left_open: Client) -> None:
    """But for passwords: those are typed once more."""
    name, word, again = f"intern-{token_hex(4)}", f"Long-and-{token_hex(8)}", {"asked_again": "1"}
    person = {"username": name, "_save": "Save"}
    add = reverse("admin:auth_user_add")
    asked = left_open.post(add, person | {"usable_password": "true", "password1": word, "password2": word})
    assert (asked.context["kept"].dict(), word in asked.content.decode()) == (person, False)
    wrong = left_open.post(add, person | again | {"password": "a guess"})
    assert f'<input type="hidden" name="username" value="{name}">' in wrong.content.decode()
    # A form without a password of its own is saved by the press that gives the reader's.
    role = Group.objects.create(name=f"role-{token_hex(4)}")
    rights = [str(pk) for pk in Permission.objects.values_list("pk", flat=True)[:2]]
    change, form = reverse("admin:auth_group_change", args=[role.pk]), {"name": f"{role.name}-b", "permissions": rights}
    assert dict(left_open.post(change, form).context["kept"].lists()) == {**form, "name": [form["name"]]}
    assert left_open.post(change, form | again | {"password": PASSWORD}).status_code == 302
    role.refresh_from_db()
    assert (role.name, role.permissions.count()) == (form["name"], 2)
    right = left_open.post(add, person | again)
    assert (right.status_code, right.context["adminform"].form["username"].value()) == (200, name)
    assert not User.objects.filter(username=name).exists()


def test_no_page_shows_a_mail_or_whom_it_goes_to() -> None:
    secret = token_hex(8)
    letter = Email.objects.create(from_email="a@example.com", to=[f"{secret}@example.com"], message=f"/{secret}/")
    browser, paths = browser_of(), list[str]()
    pages = {"/admin/": browser.get("/admin/")}  # which finds out what there is
    for model in admin.site._registry:
        name, row = f"admin:{model._meta.app_label}_{model._meta.model_name}", model._default_manager.last()
        paths += [reverse(f"{name}_changelist"), *([reverse(f"{name}_change", args=[row.pk])] if row else [])]
    pages |= {path: browser.get(path, follow=True) for path in paths}
    letter.delete()
    assert [path for path, page in pages.items() if secret in page.content.decode()] == []
    assert [page.status_code for page in pages.values()].count(200) > 10  # the control: they are pages
