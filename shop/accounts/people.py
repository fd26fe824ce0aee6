"""The accounts and the groups of staff, with every right in the language of the reader.
Decides nothing: what a right lets somebody do stands with what asks for it.
"""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.translation import gettext

from shop.accounts import sessions
from shop.accounts.factor_steps import page
from shop.accounts.forms import PasswordAgain
from shop.names.changes import TellsChanges
from shop.names.sentences import in_words

ASKED = "asked_again"  # in what the page sends that asks for the password; their own forms have passwords, too
NEVER_KEPT = re.compile(rf"csrfmiddlewaretoken|{ASKED}|.*(password|code).*")


class RightsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Rights to choose from. Their names are rows of the database, which are in English."""

    def label_from_instance(self, right: Permission) -> str:
        return f"{right.content_type} | {in_words(right.name)}"


def _kept(request: HttpRequest) -> QueryDict:
    """Return what the reader has filled in, but for passwords and codes."""
    kept = request.POST.copy()
    for name in filter(NEVER_KEPT.fullmatch, request.POST):
        del kept[name]
    return kept


def _go_on(request: HttpRequest) -> HttpResponse | None:
    """Let the form that was filled in be sent now; without one lead back to its page."""
    kept = _kept(request)
    if not kept:
        return HttpResponseRedirect(request.get_full_path())
    request.POST = kept  # type: ignore[assignment]
    return None


class PasswordFirst(admin.ModelAdmin):  # type: ignore[type-arg]
    """Asks for the reader's password again before a form that decides who may log in, and what they may do.

    Without it a session that was left open could give itself another account, or any account another password. The
    rights in its form are in words.
    """

    def changeform_view(self, request: HttpRequest, *args: Any, **named: Any) -> HttpResponse:
        return self._ask(request) or super().changeform_view(request, *args, **named)

    def delete_view(self, request: HttpRequest, *args: Any, **named: Any) -> HttpResponse:
        return self._ask(request) or super().delete_view(request, *args, **named)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest | None = None, **options: Any) -> Any:
        if db_field.related_model is Permission:
            options["form_class"] = RightsField
        return super().formfield_for_manytomany(db_field, request, **options)  # type: ignore[arg-type]

    def _ask(self, request: HttpRequest) -> HttpResponse | None:
        """Return a page that asks, or leads back here; None when it was given, or when the reader may only look."""
        rights = (self.has_add_permission, self.has_change_permission, self.has_delete_permission)
        if not any(may(request) for may in rights):
            return None
        if sessions.has_fresh_password(request.session) and ASKED not in request.POST:
            return None
        form = PasswordAgain(request, request.POST if ASKED in request.POST else None)
        if form.is_valid():
            return _go_on(request)
        if request.method == "POST" and ASKED not in request.POST:
            messages.warning(request, gettext("Nothing was saved: it is too long ago that you gave your password."))
        context = {**admin.site.each_context(request), "title": self.opts.verbose_name_plural, "asked": ASKED}
        return page(request, "password_again", context, form=form, kept=_kept(request), act=gettext("Continue"))


class StaffAdmin(PasswordFirst, TellsChanges, UserAdmin):  # type: ignore[type-arg]
    """Django's own, with its rights in words."""

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        return self._ask(request) or super().user_change_password(request, id, form_url)


class RoleAdmin(PasswordFirst, TellsChanges, GroupAdmin):
    """Django's own, with its rights in words."""


admin.site.unregister([User, Group])
admin.site.register(User, StaffAdmin)
admin.site.register(Group, RoleAdmin)
