"""The calls of the API that are not hot: a sale's audit, the description of the API, the answer to unknown addresses.
Never changes anything.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.csrf import csrf_exempt

from inventory.exceptions import FairdropError, MethodNotAllowed, Unauthenticated, Unavailable
from inventory.telemetry.measures import note_store_errors
from shop.accounts.site import is_let_in
from shop.replies import problem
from shop.sales.audit import audit_sale

log = structlog.get_logger(__name__)

View = Callable[..., HttpResponse]
# The contract of docs/api.md for programs, as OpenAPI 3.1; never made from the code: tests hold both to it.
DESCRIPTION = Path(__file__).with_name("openapi.json").read_bytes()


def problem_response(error: FairdropError) -> JsonResponse:
    """Return `error` as application/problem+json."""
    response = JsonResponse(problem(error), status=error.status, content_type="application/problem+json")
    if error.retry_after_seconds is not None:
        response["Retry-After"] = str(error.retry_after_seconds)
    return response


def answered(view: View, request: HttpRequest, methods: Sequence[str], *args: str, **named: str) -> HttpResponse:
    """Return what `view` answers to one of `methods`; every fault as a problem, also a database that is away."""
    try:
        if request.method not in methods:
            raise MethodNotAllowed(f"this address takes {methods[0]} only")
        return view(request, *args, **named)
    except FairdropError as error:
        return problem_response(error)
    except (DatabaseError, InterfaceError) as error:
        note_store_errors("postgresql")
        log.warning("database away or busy", action="call_failed", path=request.path, error=str(error))
        return problem_response(Unavailable())


def api_call(*methods: str) -> Callable[[View], View]:
    """Take `methods` only and answer every fault with a problem.

    Without Django's CSRF check: who may make an unsafe call is known by its token, origin or signature.
    """

    def decorate(view: View) -> View:
        @csrf_exempt
        @wraps(view)
        def checked(request: HttpRequest, *args: str, **named: str) -> HttpResponse:
            response = answered(view, request, methods, *args, **named)
            add_never_cache_headers(response)
            return response

        return checked

    return decorate


def may_audit(request: HttpRequest) -> bool:
    """Say whether the caller is staff or shows the audit token."""
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if settings.AUDIT_TOKEN and hmac.compare_digest(token.encode(), settings.AUDIT_TOKEN.encode()):
        return True
    return is_let_in(request) and request.user.has_perm("shop.view_sale")


@api_call("GET", "HEAD")
def sale_audit(request: HttpRequest, slug: str) -> JsonResponse:
    """GET /api/v1/sales/<slug>/audit: every invariant of the sale, for staff or the holder of the audit token."""
    if not may_audit(request):
        raise Unauthenticated("the audit is for staff, or for the holder of the audit token")
    return JsonResponse(audit_sale(slug))


@api_call("GET", "HEAD")
def openapi(request: HttpRequest) -> HttpResponse:
    """GET /api/v1/openapi.json, for anybody."""
    return HttpResponse(DESCRIPTION, content_type="application/json")


class NotFound(FairdropError):
    """There is nothing at this address."""

    code, status = "not_found", 404


@csrf_exempt
def unknown_address(request: HttpRequest, rest: str = "") -> JsonResponse:
    """Answer any other address under /api/ with a problem, not a page."""
    return problem_response(NotFound())
