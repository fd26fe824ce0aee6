"""Writes logins, failed logins, logouts and whatever else concerns accounts into the log of acts.
Never writes what was typed as a name unless there is such an account: it may be a password in the wrong field.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import structlog
from axes.signals import user_locked_out
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models.signals import post_save
from django.http import HttpRequest
from django.utils import translation

from shop.accounts import sessions
from shop.client_address import client_address
from shop.models import StaffAct
from shop.names.changes import changes_in

log = structlog.get_logger(__name__)
# Details of a login or code that was refused.
NO_ACCOUNT, NOT_STAFF, ENROLLING, ASKED_AGAIN = "no such account", "not of the staff", "while enrolling", "asked again"
MAX_ACTOR_LENGTH, MAX_DETAIL_LENGTH = 150, 200


class AccountAct(StrEnum):
    """What the log calls each act on an account; FORM: a form of the admin was saved, or deleted something."""

    LOGIN = "login"
    LOGIN_FAILED = "login_failed"
    LOGOUT = "logout"
    CODE_TAKEN = "code_taken"
    CODE_FAILED = "code_failed"
    RECOVERY_CODE_TAKEN = "recovery_code_taken"
    ENROLLED = "enrolled"
    NEW_RECOVERY_CODES = "new_recovery_codes"
    PASSKEY_ADDED = "passkey_added"
    PASSKEY_REMOVED = "passkey_removed"
    PASSKEY_TAKEN = "passkey_taken"
    PASSKEY_FAILED = "passkey_failed"
    FACTOR_RESET = "second_factor_reset"
    PASSWORD_AGAIN = "password_again"  # noqa: S105 - the name of an act
    PASSWORD_CHANGED = "password_changed"  # noqa: S105
    FORM = "form"


def connect() -> None:
    """Listen to Django and django-axes; once, when the apps are ready."""
    user_logged_in.connect(_logged_in)
    user_logged_out.connect(_logged_out)
    user_login_failed.connect(_login_failed)
    user_locked_out.connect(_login_locked)
    post_save.connect(_form_saved, sender=LogEntry)


def note(act: AccountAct, *, actor: str, request: HttpRequest | None = None, detail: str = "") -> None:
    """Write one act. actor: the account; request: from where it came, when it came over HTTP."""
    address = client_address(request) if request is not None else ""
    origin = f"from {address}" if address else ""
    told = "; ".join(part for part in (detail, origin) if part)
    StaffAct.objects.create(act=act, actor=actor[:MAX_ACTOR_LENGTH], detail=told[:MAX_DETAIL_LENGTH])


def _logged_in(*_: Any, request: HttpRequest, user: User, **_more: Any) -> None:
    sessions.begin(request.session)
    note(AccountAct.LOGIN, actor=user.get_username(), request=request)


def _logged_out(*_: Any, request: HttpRequest, user: User | None, **_more: Any) -> None:
    if user is not None:
        note(AccountAct.LOGOUT, actor=user.get_username(), request=request)


def _login_failed(*_: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **_more: Any) -> None:
    """Write a failed login. One that django-axes refused unread is in the program's log only: they may be many."""
    if getattr(request, "axes_failures_since_start", 1) is None:
        return
    typed = str(credentials.get("username") or "")[:MAX_ACTOR_LENGTH]
    found = User.objects.filter(username=typed).exists()
    detail = "" if found else NO_ACCOUNT
    note(AccountAct.LOGIN_FAILED, actor=typed if found else "", request=request, detail=detail)


def _login_locked(*_: Any, request: HttpRequest, username: str | None, **_more: Any) -> None:
    """Log a login that was refused, with the address and the account that somebody typed."""
    log.warning(
        "login refused after too many failed ones",
        action="login_locked",
        address=client_address(request),
        account=(username or "")[:MAX_ACTOR_LENGTH],
    )


def _form_saved(*_: Any, instance: LogEntry, created: bool, **_more: Any) -> None:
    """Write what a form of the admin did, but for changes of a sale: those are written with the sale."""
    kind = instance.content_type
    model = kind.model if kind is not None else ""
    if created and not (model == "sale" and instance.action_flag == CHANGE):
        with translation.override("en"):  # what is stored is for every reader
            detail = "; ".join(filter(None, (f"{model}: {instance}", changes_in(instance))))
        note(AccountAct.FORM, actor=instance.user.get_username(), detail=detail)
