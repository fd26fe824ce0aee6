"""The pages for what went wrong behind every view: no such address, no right to it, a form that may be
forged, a fault of ours.
Never shows anything that came with the request.
"""

from __future__ import annotations

import sys

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils.cache import add_never_cache_headers

from inventory.exceptions import InvalidRequest, Unavailable
from inventory.telemetry.measures import note_store_errors
from shop.web.pages import show


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unknown address."""
    return show(request, "shop/404.html", {}, status=404)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that cannot be read. Django's own view for it reads the form, and so would fail once more."""
    return show(request, "shop/error.html", {}, error=InvalidRequest())


def not_allowed(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a member of staff whose rights do not reach that far."""
    return show(request, "shop/forbidden.html", {}, status=403)


def form_refused(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a press without this shop's own token; most often the browser keeps no cookies. reason: Django logs it."""
    response = show(request, "shop/403.html", {}, status=403)
    add_never_cache_headers(response)
    return response


def locked_out(request: HttpRequest, response: HttpResponse | None = None, *_credentials: object) -> HttpResponse:
    """Answer a login from an address, or for an account, that is locked after too many failed logins."""
    seconds = round(settings.AXES_COOLOFF_TIME.total_seconds())
    answer = show(request, "shop/429.html", {"minutes": seconds // 60}, status=429)
    answer["Retry-After"] = f"{seconds}"
    add_never_cache_headers(answer)
    return answer


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a fault of ours.

    The session of a page is read behind every view's back; when the database is away that is no fault, but a 503.
    """
    if isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        note_store_errors("postgresql")
        return show(request, "shop/500.html", {}, error=Unavailable())
    return show(request, "shop/500.html", {}, status=500)
