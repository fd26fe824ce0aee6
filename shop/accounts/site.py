"""The shop's admin site: nobody sees a page of it without password, second factor and a session that is not over.
Never lets a half logged-in person do more than show or enrol the second factor, and log out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import update_wrapper
from typing import Any

from django.contrib import admin, auth
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest, ValidationError
from django.db import DataError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path, reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.cache import never_cache

from shop.accounts import factor_pages, passkey_pages, second_factor, sessions
from shop.accounts.act_log import AccountAct, note
from shop.accounts.forms import StaffLoginForm, check_password_again
from shop.web.languages import LANGUAGES, in_language_of, language_of

View = Callable[..., HttpResponse]
# How the names of pages end that take any lookup from their address: whether it can be one shows when rows are counted.
LISTS = ("_changelist", "_export")
# What the address of a list says besides a filter: page, order, search, all of it, and that an error is shown.
NO_FILTERS = {"p", "o", "q", "all", "e"}


def is_half_in(request: HttpRequest) -> bool:
    """Say whether somebody of the staff has given their password, in a session that is not over."""
    user = request.user
    return bool(user.is_active and user.is_staff and not sessions.is_over(request.session))


def is_let_in(request: HttpRequest) -> bool:
    """Say whether somebody of the staff is wholly logged in: whatever is for staff asks this, the API too."""
    return is_half_in(request) and second_factor.is_satisfied(request.user)


def is_filtered_list(request: HttpRequest) -> bool:
    """Say whether a list is read that is filtered by its address."""
    name = request.resolver_match.url_name if request.resolver_match else None
    return bool({*request.GET} - NO_FILTERS) and (name or "").endswith(LISTS)


class StaffSite(admin.AdminSite):
    """Django's admin site behind a second factor, with the pages to enrol and to show one."""

    login_form = StaffLoginForm
    login_template = "admin/accounts/login.html"

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        # Of what it deletes Django writes many rows at once, which the log of acts would not hear of.
        self.disable_action("delete_selected")

    def has_permission(self, request: HttpRequest) -> bool:
        return is_let_in(request)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """As Django's, with what the switch of the language in the head of each page needs."""
        switch = {"languages": LANGUAGES, "language": language_of(request), "path": request.get_full_path()}
        return {**super().each_context(request), **switch}

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """As Django's, in the reader's language; the session goes on while pages are used.

        A list whose address filters by a value that makes no sense is a bad request, and no fault of ours.
        """

        def used(request: HttpRequest, *args: Any, **named: Any) -> Any:
            sessions.note_use(request)
            try:
                return in_language_of(request, lambda: view(request, *args, **named))
            except (ValueError, OverflowError, DataError) as error:
                if is_filtered_list(request):
                    raise BadRequest from error
                raise

        return super().admin_view(update_wrapper(used, view), cacheable)

    def get_urls(self) -> list[URLPattern | URLResolver]:
        own = [
            path("second-factor/", self._half(factor_pages.show), name="second_factor"),
            path("second-factor/enrol/", self._half(factor_pages.enrol), name="second_factor_enrol"),
            path("second-factor/passkey/", self._half(passkey_pages.add), name="second_factor_passkey"),
            path(
                "second-factor/passkey/<int:passkey_id>/remove/",
                self._half(passkey_pages.remove),
                name="second_factor_passkey_remove",
            ),
            # Before Django's, which wants the second factor.
            path("logout/", self._leave),
        ]
        return [*own, *super().get_urls()]

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the login; to somebody who has given the password, the second step of it."""
        if is_half_in(request) and not is_let_in(request):
            return HttpResponseRedirect(f"{reverse('admin:second_factor')}?{urlencode({'next': next_page(request)})}")
        if request.user.is_authenticated and sessions.is_over(request.session):
            auth.logout(request)
        return in_language_of(request, lambda: super(StaffSite, self).login(request, extra_context))

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """As Django's, and written down. Guesses at the old password are counted as those of a password given again."""
        if request.method == "POST":
            with suppress(ValidationError):  # Django's form says so as well
                check_password_again(request, request.POST.get("old_password", ""))
            if getattr(request, "axes_locked_out", False):
                return HttpResponse(status=429)  # django-axes has the page
        response = super().password_change(request, extra_context)
        if request.method == "POST" and response.status_code == 302:
            note(AccountAct.PASSWORD_CHANGED, actor=request.user.get_username(), request=request)
        return response

    def _leave(self, request: HttpRequest) -> HttpResponse:
        # A login must not lead back here, and a press that was refused comes again as a GET: this page takes POST only.
        if request.method != "POST" or not is_half_in(request):
            return HttpResponseRedirect(reverse("admin:index"))
        return in_language_of(request, lambda: self.logout(request))

    def _half(self, view: View) -> View:
        """Let those in who have given their password; everybody else goes to the login."""

        @never_cache
        def checked(request: HttpRequest, **named: Any) -> HttpResponse:
            if not is_half_in(request):
                return redirect_to_login(request.get_full_path(), reverse("admin:login"))
            context = {**self.each_context(request), "next": next_page(request), "is_nav_sidebar_enabled": False}
            request.current_app = self.name
            return in_language_of(request, lambda: view(request, context, **named))

        return checked


def next_page(request: HttpRequest) -> str:
    """Return where the reader wanted to go: a page of this shop, else the first one of the admin."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    is_ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if is_ours else reverse("admin:index")
