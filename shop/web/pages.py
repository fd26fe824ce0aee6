"""What the pages share: the answer to a foreseeable fault, the language, who reads, and the cookies of a browser.
Never answers a foreseeable fault with a 500, and never lets an answer be stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import translation
from django.utils.cache import add_never_cache_headers, patch_vary_headers

from inventory.exceptions import FairdropError, Unauthenticated, Unavailable
from inventory.redis import clocks
from inventory.telemetry.measures import note_store_errors
from shop import buyers
from shop.client_address import client_address, network_of
from shop.orders import requests as requests_service
from shop.orders import ticket_links
from shop.web.languages import LANGUAGES, language_of
from shop.web.presses import answer_press
from shop.web.sale_presenter import milliseconds

View = Callable[..., HttpResponse]
# Keeps, for one sale's path only, the signed ticket that this browser got there; the same press again shows it.
TICKET_COOKIE = "ticket"
# Keeps the pass that this browser waited for on one sale's path; one that was worked for comes with the form.
PASS_COOKIE = "pass"  # noqa: S105
# Keeps, on the path of the page where this browser waits for a pass, when the wait began.
WAIT_COOKIE = "wait"
# Keeps what proves that this browser's buyer reads an e-mail address, on one sale's path.
EMAIL_COOKIE = "email"
# Keeps the signed ticket on its own page's path, so that the page brings a lost place back also without script.
PROOF_COOKIE = "proof"
# Keeps the secret of a ticket's link on that ticket's path, in a browser that was opened by the link.
LINK_COOKIE = "link"
# Begins the name of each cookie that one of the last asks leaves for shop/web/my_tickets.py: a signed ticket.
# Which of them the last ask took is kept by one for all paths: what a browser sends must never grow.
ASKED_COOKIE, ASKED_TURNS = "asked-", "0123456789"
LAST_ASKED_COOKIE = "asked"
# A reader's call has it when no more tokens go to their address now; a press makes one all the same.
NO_TOKEN = "fairdrop-no-token"  # noqa: S105 - the name of a header


def page(view: View) -> View:
    """Answer every foreseeable fault of a page with its own status and a page that says what to do."""

    @functools.wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = view(request, *args, **kwargs)
        except FairdropError as error:
            response = error_page(request, error)
        except (OperationalError, InterfaceError):
            note_store_errors("postgresql")
            response = error_page(request, Unavailable())
        response = answer_press(request, response)
        renew_token(request, response)
        add_never_cache_headers(response)
        return response

    return wrapped


def error_page(request: HttpRequest, error: FairdropError) -> HttpResponse:
    """Render the page of one of our errors: not found as 404.html, anything else as error.html."""
    return show(request, "shop/404.html" if error.status == 404 else "shop/error.html", {}, error=error)


def show(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    *,
    status: int = 200,
    error: FairdropError | None = None,
) -> HttpResponse:
    """Render a page with the server's moment in it, from which countdown.js counts; an error has its own status."""
    now: datetime = context.get("now") or clocks.now()
    language = language_of(request)
    more = {"server_ms": milliseconds(now), "languages": LANGUAGES, "language": language}
    more |= {"path": context.get("path", request.path)}  # to which another language leads
    more |= {"sandbox": settings.SANDBOX_IN_USE, "links": settings.SHOP_LINKS}
    with translation.override(language):
        shown = {**context, **more, "error": error}
        response = render(request, template, shown, status=error.status if error else status)
    if error and error.retry_after_seconds is not None:
        response["Retry-After"] = str(error.retry_after_seconds)
    response["Content-Language"] = language
    patch_vary_headers(response, ["Accept-Language", "Cookie"])
    return response


def paging(request: HttpRequest, number: int, *, has_older: bool) -> dict[str, Any]:
    """Return what one page of a long list is shown with: its neighbours, 0 for none, and its own address.

    By that address another language leads back to the page, and not to the first one.
    """
    path = f"{request.path}?page={number}" if number > 1 else request.path
    return {"newer": number - 1, "older": number + 1 if has_older else 0, "path": path}


def known_buyer(request: HttpRequest) -> str | None:
    """Return the buyer of a valid cookie, else None."""
    try:
        return buyers.verify_token(buyers.token_sent(cookies_of(request)))
    except Unauthenticated:
        return None


def cookies_of(request: HttpRequest) -> Callable[[str], str]:
    """Return a function that gives a cookie of `request` by its name, '' for none."""
    return lambda name: request.COOKIES.get(name, "")


def reader_of(request: HttpRequest, request_id: str) -> str:
    """Return the buyer as whom this browser may read and use one ticket: the one who shared its link, else its own.

    Of a request that the line has lost nobody knows the owner; whose own browser it is brings it back.
    """
    secret = request.COOKIES.get(LINK_COOKIE, "")
    if secret and ticket_links.opens(request_id, secret) and (owner := requests_service.find_buyer(request_id)):
        return owner
    return known_buyer(request) or ""


def set_cookie(
    response: HttpResponse, *, name: str, value: str, path: str = "/", max_age: int = buyers.COOKIE_MAX_AGE_SECONDS
) -> None:
    """Set a cookie that scripts and other sites cannot use."""
    response.set_cookie(
        name,
        value,
        max_age=max_age,
        path=path,
        secure=settings.BEHIND_TLS,
        httponly=True,
        samesite="Lax",
    )


def renew_token(request: HttpRequest, response: HttpResponse) -> None:
    """Give a reader whose token is no longer young a newer one, so that their receipts stay theirs; nobody a first."""
    token = buyers.token_to_set(buyers.token_sent(cookies_of(request)), issue=str)
    if token and buyers.COOKIE_NAME not in response.cookies:
        set_cookie(response, name=buyers.COOKIE_NAME, value=token)


def token_to_give(request: HttpRequest) -> str:
    """Return the token that a page gives its reader: '' for who keeps theirs, or where too many went to their network.

    One of a new buyer names the network, by which it can be revoked.
    """

    def issue() -> str:
        given = NO_TOKEN not in request.headers
        return buyers.issue_buyer(network_of(client_address(request)))[1] if given else ""

    return buyers.token_to_set(buyers.token_sent(cookies_of(request)), issue=issue)
