"""What the pages of the second factor share: letting somebody in, counting what was refused, rendering.
Decides nothing about a code or a passkey.
"""

from __future__ import annotations

from typing import Any, cast

from axes.handlers.proxy import AxesProxyHandler
from axes.helpers import get_credentials
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext
from django_otp import login as show_device
from django_otp.models import Device

from shop.accounts import second_factor
from shop.accounts.act_log import AccountAct, note

Context = dict[str, Any]


def is_locked(request: HttpRequest) -> bool:
    """Say whether too many logins and codes of this account failed; then the middleware of django-axes answers 429."""
    if AxesProxyHandler.is_allowed(request, get_credentials(request.user.get_username())):
        return False
    request.axes_locked_out = True  # type: ignore[attr-defined]
    return True


def count_refused(request: HttpRequest, act: AccountAct) -> None:
    """Write a code or a passkey that was refused, and count it with failed logins."""
    name = request.user.get_username()
    note(act, actor=name, request=request)
    AxesProxyHandler.user_login_failed(count_refused, get_credentials(name), request)


def let_in(request: HttpRequest, device: Device, act: AccountAct, *, detail: str = "") -> None:
    """Note in the session that `device` was shown; under a new key, as at every step up."""
    show_device(request, device)
    request.session.cycle_key()
    note(act, actor=request.user.get_username(), request=request, detail=detail)


def redirect(name: str, context: Context) -> HttpResponse:
    """Lead to another page of the second factor, and from there to where the reader wanted to go."""
    return HttpResponseRedirect(f"{reverse(name)}?{urlencode({'next': context['next']})}")


def page(request: HttpRequest, name: str, context: Context, **more: Any) -> HttpResponse:
    """Render a template of the folder admin/accounts."""
    return TemplateResponse(request, f"admin/accounts/{name}.html", {**context, **more})


def new_codes_page(request: HttpRequest, context: Context, codes: list[str]) -> HttpResponse:
    """Show new recovery codes, this once."""
    return page(request, "recovery_codes", context, title=gettext("Recovery codes"), codes=codes)


def reader(request: HttpRequest) -> User:
    """Return the member of staff who has given the password."""
    return cast(User, request.user)


def must_show_first(request: HttpRequest) -> bool:
    """Say whether the reader has a second factor that was not shown in this session: then none may be added."""
    user = reader(request)
    return second_factor.is_set_up(user) and not second_factor.is_shown(user)
