"""The forms of logging in: password, code, and the password again before what moves money or stock.
Never says which part of a login was wrong.
"""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from shop.accounts import sessions
from shop.accounts.act_log import ASKED_AGAIN, NOT_STAFF, AccountAct, note
from shop.accounts.limits import count_wrong_password, may_try_again


class StaffLoginForm(AdminAuthenticationForm):
    """Django's own; the right password of an account that is not of the staff is written down as a failed login."""

    def confirm_login_allowed(self, user: User) -> None:
        """Raise ValidationError for somebody who is not staff."""
        try:
            super().confirm_login_allowed(user)
        except forms.ValidationError:
            note(AccountAct.LOGIN_FAILED, actor=user.get_username(), request=self.request, detail=NOT_STAFF)
            raise


def is_own_password(request: HttpRequest, password: str) -> bool:
    """Say whether `password` is the reader's. It is compared once a request, so that it can be before a transaction.

    On a busy machine hashing takes longer than PostgreSQL lets a transaction rest.
    """
    compared: tuple[str, bool] | None = getattr(request, "compared_password", None)
    if compared is None or compared[0] != password:
        is_own = may_try_again(request) and cast(User, request.user).check_password(password)
        compared = request.compared_password = (password, is_own)  # type: ignore[attr-defined]
    return compared[1]


def check_password_again(request: HttpRequest, password: str) -> None:
    """Note in the session that the reader has given their password again. Raises ValidationError for a wrong one."""
    user = cast(User, request.user)
    if not is_own_password(request, password):
        if not getattr(request, "axes_locked_out", False):
            note(AccountAct.LOGIN_FAILED, actor=user.get_username(), request=request, detail=ASKED_AGAIN)
            count_wrong_password(request)
        raise forms.ValidationError(gettext_lazy("This is not your password."))
    sessions.note_password(request.session)
    note(AccountAct.PASSWORD_AGAIN, actor=user.get_username(), request=request)


class PasswordAgain(forms.Form):
    """Asks for the reader's password again, unless it was given a moment ago.

    asks_password: whether this form asks at all.
    """

    password = forms.CharField(
        label=gettext_lazy("Your password, again"),
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "current-password"}),
    )

    def __init__(self, request: HttpRequest, data: Any = None, *, asks_password: bool = True, **more: Any) -> None:
        super().__init__(data, **more)
        self.request = request
        password = self.fields.pop("password")
        if asks_password and not sessions.has_fresh_password(request.session):
            self.fields["password"] = password  # the last one

    def clean_password(self) -> str:
        """Check the password. Guesses at it are counted for this session alone: no stranger at the login locks it."""
        check_password_again(self.request, self.cleaned_data["password"])
        return ""

    def clean(self) -> dict[str, Any]:
        """Leave the password out of what the form hands on."""
        data = super().clean() or self.cleaned_data
        data.pop("password", None)
        return data


class CodeForm(forms.Form):
    """A code of the authenticator, or a recovery code."""

    code = forms.CharField(
        label=gettext_lazy("Code"),
        max_length=40,
        widget=forms.TextInput({"autocomplete": "one-time-code", "inputmode": "numeric", "autofocus": True}),
    )


class EnrolForm(PasswordAgain, CodeForm):
    """The first code of a new authenticator; to replace one, the password again too."""


class PasskeyForm(forms.Form):
    """The name of a new passkey, and what the browser answered, which the script of the page fills in."""

    name = forms.CharField(label=gettext_lazy("Name of the passkey"), max_length=64)
    credential = forms.CharField(max_length=8000, widget=forms.HiddenInput)
