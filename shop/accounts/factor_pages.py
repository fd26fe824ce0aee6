"""The pages of the second factor: show a code or a passkey, enrol an authenticator, make new recovery codes.
Never replaces an authenticator unless a second factor was shown in this session.
"""

from __future__ import annotations

from base64 import b32encode

import segno
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, ngettext
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from shop.accounts import passkey_pages, second_factor
from shop.accounts.act_log import ENROLLING, AccountAct, note
from shop.accounts.factor_steps import (
    Context,
    count_refused,
    is_locked,
    let_in,
    must_show_first,
    new_codes_page,
    page,
    reader,
    redirect,
)
from shop.accounts.forms import CodeForm, EnrolForm, PasswordAgain
from shop.accounts.second_factor import Checked
from shop.passkeys import ceremonies

DRAFT = "authenticator_draft"  # the session's key of the authenticator that is being enrolled


def show(request: HttpRequest, context: Context) -> HttpResponse:
    """Ask for a code or a passkey; after one was given, show how things stand and offer new recovery codes."""
    user = reader(request)
    if not second_factor.is_set_up(user):
        return redirect("admin:second_factor_enrol", context)
    if second_factor.is_shown(user):
        return _standing(request, context)
    is_passkey = passkey_pages.ANSWER in request.POST
    if is_passkey and passkey_pages.show(request):
        return HttpResponseRedirect(context["next"])
    form = CodeForm(None if is_passkey else request.POST or None)
    if form.is_valid():
        checked = _check_code(request, form.cleaned_data["code"])
        if checked.device is not None:
            return HttpResponseRedirect(context["next"])
        form.add_error("code", _refusal(checked))
    shown = {"form": form, "is_passkey_refused": is_passkey}
    if ceremonies.are_offered() and second_factor.passkeys_of(user):
        shown["passkey_options"] = ceremonies.request_options(user, request.session)
    return page(request, "code", context, title=gettext("Second factor"), **shown)


def enrol(request: HttpRequest, context: Context) -> HttpResponse:
    """Show the key of a new authenticator, as a QR code and as text; with its first code it is enrolled."""
    user = reader(request)
    if must_show_first(request):
        return redirect("admin:second_factor", context)
    is_first = not second_factor.is_set_up(user)
    draft = second_factor.draft_authenticator(user, draft_id=request.session.get(DRAFT))
    request.session[DRAFT] = draft.pk
    form = EnrolForm(request, request.POST or None, asks_password=not is_first)
    if form.is_valid():
        checked, codes = second_factor.enrol(user, draft, code=form.cleaned_data["code"])
        if checked.device is not None:
            del request.session[DRAFT]
            let_in(request, checked.device, AccountAct.ENROLLED)
            return new_codes_page(request, context, codes)
        note(AccountAct.CODE_FAILED, actor=user.get_username(), request=request, detail=ENROLLING)
        form.add_error("code", _refusal(checked))
    key = b32encode(draft.bin_key).decode()
    shown = {"form": form, "key": key, "qr_code": _qr_code(draft), "is_first": is_first}
    shown |= {
        "replaces": second_factor.find_authenticator(user) is not None,
        "passkeys_offered": ceremonies.are_offered(),
    }
    return page(request, "enrol", context, title=gettext("Set up a second factor"), **shown)


def _standing(request: HttpRequest, context: Context) -> HttpResponse:
    """Show how things stand; a POST makes new recovery codes, once the password was given again."""
    user = reader(request)
    form = PasswordAgain(request, request.POST if request.method == "POST" else None)
    if form.is_valid():
        codes = second_factor.make_recovery_codes(user)
        note(AccountAct.NEW_RECOVERY_CODES, actor=user.get_username(), request=request)
        return new_codes_page(request, context, codes)
    shown = {
        "form": form,
        "authenticator": second_factor.find_authenticator(user),
        "passkeys": second_factor.passkeys_of(user),
        "passkeys_offered": ceremonies.are_offered(),
        "codes_left": second_factor.count_recovery_codes(user),
    }
    return page(request, "second_factor", context, title=gettext("Second factor"), **shown)


def _check_code(request: HttpRequest, typed: str) -> Checked:
    """Try a code; wrong ones are counted with failed logins too, and too many of both end in 429."""
    user = reader(request)
    if is_locked(request):
        return Checked(None)
    checked = second_factor.check_code(user, typed)
    if checked.device is None:
        count_refused(request, AccountAct.CODE_FAILED)
        return checked
    if isinstance(checked.device, StaticDevice):
        let_in(request, checked.device, AccountAct.RECOVERY_CODE_TAKEN)
        left = second_factor.count_recovery_codes(user)
        told = ngettext("%(n)d recovery code is left.", "%(n)d recovery codes are left.", left) % {"n": left}
        messages.warning(request, told)
    else:
        let_in(request, checked.device, AccountAct.CODE_TAKEN)
    return checked


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
