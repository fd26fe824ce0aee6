"""The pages of the second factor: show a code, enrol an authenticator, make new recovery codes.
Never replaces an authenticator unless a code of the one before, or a recovery code, was shown in this session.
"""

from __future__ import annotations

from base64 import b32encode
from typing import Any, cast

import segno
from axes.handlers.proxy import AxesProxyHandler
from axes.helpers import get_credentials
from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, ngettext
from django_otp import login as show_device
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from shop.accounts import second_factor
from shop.accounts.act_log import ENROLLING, AccountAct, note
from shop.accounts.forms import CodeForm, EnrolForm, PasswordAgain
from shop.accounts.second_factor import Checked

DRAFT = "authenticator_draft"  # the session's key of the authenticator that is being enrolled
Context = dict[str, Any]


def show(request: HttpRequest, context: Context) -> HttpResponse:
    """Ask for a code; after one was given, show how things stand and offer new recovery codes."""
    user = cast(User, request.user)
    authenticator = second_factor.find_authenticator(user)
    if authenticator is None:
        return _redirect("admin:second_factor_enrol", context)
    if second_factor.is_shown(user):
        return _standing(request, context, authenticator)
    form = CodeForm(request.POST or None)
    if form.is_valid():
        checked = _check_code(request, form.cleaned_data["code"])
        if checked.device is not None:
            return HttpResponseRedirect(context["next"])
        form.add_error("code", _refusal(checked))
    return _page(request, "code", context, title=gettext("Second factor"), form=form)


def enrol(request: HttpRequest, context: Context) -> HttpResponse:
    """Show the key of a new authenticator, as a QR code and as text; with its first code it is enrolled."""
    user = cast(User, request.user)
    replaces = second_factor.find_authenticator(user) is not None
    if replaces and not second_factor.is_shown(user):
        return _redirect("admin:second_factor", context)
    draft = second_factor.draft_authenticator(user, draft_id=request.session.get(DRAFT))
    request.session[DRAFT] = draft.pk
    form = EnrolForm(request, request.POST or None, asks_password=replaces)
    if form.is_valid():
        checked, codes = second_factor.enrol(user, draft, code=form.cleaned_data["code"])
        if checked.device is not None:
            del request.session[DRAFT]
            _let_in(request, checked.device, AccountAct.ENROLLED)
            return _page(request, "recovery_codes", context, title=gettext("Recovery codes"), codes=codes)
        note(AccountAct.CODE_FAILED, actor=user.get_username(), request=request, detail=ENROLLING)
        form.add_error("code", _refusal(checked))
    key = b32encode(draft.bin_key).decode()
    shown = {"form": form, "key": key, "qr_code": _qr_code(draft), "replaces": replaces}
    return _page(request, "enrol", context, title=gettext("Set up a second factor"), **shown)


def _standing(request: HttpRequest, context: Context, authenticator: TOTPDevice) -> HttpResponse:
    """Show how things stand; a POST makes new recovery codes, once the password was given again."""
    user = cast(User, request.user)
    form = PasswordAgain(request, request.POST if request.method == "POST" else None)
    if form.is_valid():
        codes = second_factor.make_recovery_codes(user)
        note(AccountAct.NEW_RECOVERY_CODES, actor=user.get_username(), request=request)
        return _page(request, "recovery_codes", context, title=gettext("Recovery codes"), codes=codes)
    left = second_factor.count_recovery_codes(user)
    shown = {"form": form, "authenticator": authenticator, "codes_left": left}
    return _page(request, "second_factor", context, title=gettext("Second factor"), **shown)


def _check_code(request: HttpRequest, typed: str) -> Checked:
    """Try a code; wrong ones are counted with failed logins too, and too many of both end in 429."""
    user = cast(User, request.user)
    credentials = get_credentials(user.get_username())
    if not AxesProxyHandler.is_allowed(request, credentials):
        request.axes_locked_out = True  # type: ignore[attr-defined]  # the middleware of django-axes answers
        return Checked(None)
    checked = second_factor.check_code(user, typed)
    if checked.device is None:
        note(AccountAct.CODE_FAILED, actor=user.get_username(), request=request)
        AxesProxyHandler.user_login_failed(show, credentials, request)
        return checked
    if isinstance(checked.device, StaticDevice):
        _let_in(request, checked.device, AccountAct.RECOVERY_CODE_TAKEN)
        left = second_factor.count_recovery_codes(user)
        told = ngettext("%(n)d recovery code is left.", "%(n)d recovery codes are left.", left) % {"n": left}
        messages.warning(request, told)
    else:
        _let_in(request, checked.device, AccountAct.CODE_TAKEN)
    return checked


def _let_in(request: HttpRequest, device: TOTPDevice | StaticDevice, act: AccountAct) -> None:
    """Note in the session that `device` was shown; under a new key, as at every step up."""
    show_device(request, device)
    request.session.cycle_key()
    note(act, actor=request.user.get_username(), request=request)


def _refusal(checked: Checked) -> forms.ValidationError:
    if checked.wait_seconds:
        text = ngettext(
            "This code was not taken. Wait %(n)d second, then try the next one.",
            "This code was not taken. Wait %(n)d seconds, then try the next one.",
            checked.wait_seconds,
        )
        return forms.ValidationError(text % {"n": checked.wait_seconds})
    return forms.ValidationError(gettext("This code was not taken. Each code works once."))


def _qr_code(authenticator: TOTPDevice) -> SafeString:
    """Return the key as an inline drawing, dark on light in every theme; kept in no cache."""
    code = segno.make_qr(authenticator.config_url, error="m")
    drawing = code.svg_inline(scale=5, light="#fff", svgclass=None, lineclass=None, border=4)
    return mark_safe(drawing)  # noqa: S308 - made here of numbers alone


def _redirect(name: str, context: Context) -> HttpResponse:
    return HttpResponseRedirect(f"{reverse(name)}?{urlencode({'next': context['next']})}")


def _page(request: HttpRequest, name: str, context: Context, **more: Any) -> HttpResponse:
    return TemplateResponse(request, f"admin/accounts/{name}.html", {**context, **more})
