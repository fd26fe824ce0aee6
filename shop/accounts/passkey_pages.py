"""The pages of passkeys: add one, remove one, and the step of a login in which one is shown.
Never adds or removes one in a session that did not show a second factor, unless there is none yet; and never takes
away the last way to show one.
"""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext

from shop.accounts import second_factor, sessions
from shop.accounts.act_log import AccountAct, note
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
from shop.accounts.forms import PasskeyForm, PasswordAgain
from shop.passkeys import ceremonies
from shop.passkeys.models import Passkey

ANSWER = "credential"  # the field in which the script puts what the browser answered


def show(request: HttpRequest) -> bool:
    """Judge the passkey that a login shows, and let its owner in; what is refused is counted with failed logins."""
    if is_locked(request):
        return False
    passkey = ceremonies.check(reader(request), request.session, answer=request.POST[ANSWER])
    if passkey is None:
        count_refused(request, AccountAct.PASSKEY_FAILED)
        return False
    let_in(request, passkey, AccountAct.PASSKEY_TAKEN, detail=passkey.name)
    return True


def add(request: HttpRequest, context: Context) -> HttpResponse:
    """Set up a passkey; alongside another second factor, the password is asked for first, on a page of its own."""
    user, title = reader(request), gettext("Add a passkey")
    if not ceremonies.are_offered() or must_show_first(request):
        return redirect("admin:second_factor", context)
    is_first = not second_factor.is_set_up(user)
    # First: what a browser has set up is not to be refused for a password that was mistyped.
    if not is_first and not sessions.has_fresh_password(request.session):
        asked = PasswordAgain(request, request.POST if "password" in request.POST else None)
        if not asked.is_valid():
            return page(request, "password_again", context, title=title, form=asked, act=gettext("Continue"))
        return redirect("admin:second_factor_passkey", context)
    form = PasskeyForm(request.POST if ANSWER in request.POST else None)
    if form.is_valid():
        passkey = ceremonies.create(
            user, request.session, answer=form.cleaned_data[ANSWER], name=form.cleaned_data["name"]
        )
        if passkey is not None:
            return _added(request, context, passkey, is_first=is_first)
        form.add_error(None, gettext("This passkey was not taken. Try again."))
    options = ceremonies.creation_options(user, request.session)
    return page(request, "passkey", context, title=title, form=form, passkey_options=options)


def remove(request: HttpRequest, context: Context, *, passkey_id: int) -> HttpResponse:
    """Remove a passkey of the reader, once the password was given again."""
    user = reader(request)
    if must_show_first(request):
        return redirect("admin:second_factor", context)
    passkey = get_object_or_404(Passkey, user=user, pk=passkey_id)
    form = PasswordAgain(request, request.POST if request.method == "POST" else None)
    if form.is_valid():
        if second_factor.remove_passkey(user, passkey):
            note(AccountAct.PASSKEY_REMOVED, actor=user.get_username(), request=request, detail=passkey.name)
            return redirect("admin:second_factor", context)
        form.add_error(None, gettext("This is your only second factor. Set up another one first."))
    title = gettext("Remove the passkey %(name)s") % {"name": passkey.name}
    return page(request, "password_again", context, title=title, form=form, act=gettext("Remove"))


def _added(request: HttpRequest, context: Context, passkey: Passkey, *, is_first: bool) -> HttpResponse:
    """Go on after a passkey was set up; the first second factor of an account comes with recovery codes."""
    user = reader(request)
    if is_first:
        let_in(request, passkey, AccountAct.PASSKEY_ADDED, detail=passkey.name)
        return new_codes_page(request, context, second_factor.make_recovery_codes(user))
    note(AccountAct.PASSKEY_ADDED, actor=user.get_username(), request=request, detail=passkey.name)
    messages.success(request, gettext("The passkey %(name)s was added.") % {"name": passkey.name})
    return redirect("admin:second_factor", context)
