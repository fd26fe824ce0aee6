"""The pages about mails: give and delete an address on the ticket, end the mails by a link in one of them, and the
mailbox of a shop that sends to nobody. Never sends and never shows an address to a browser that is not its buyer's.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe
from post_office.models import Email

from inventory.exceptions import FairdropError, RequestNotFound
from shop.orders import mails, requests
from shop.payments import checkout
from shop.web.languages import language_of
from shop.web.pages import known_buyer, page, show
from shop.web.ticket_actions import to_ticket
from shop.web.views import ticket_page

MAX_SHOWN = 50


@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_address(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Keep the address of the form, or delete the one that is kept when the form has none; only for the buyer."""
    if request.method != "POST":
        return to_ticket(request_id)
    requests.look_up(request_id, buyer=known_buyer(request) or "")
    address = request.POST.get("address", "").strip()
    try:
        if address:
            mails.keep_address(request_id, address, language=language_of(request), root=checkout.root_of(request))
        else:
            mails.forget_address(request_id)
    except FairdropError as error:
        return ticket_page(request, request_id, error=error)
    return to_ticket(request_id)


# A mail program ends the mails by a POST of its own (RFC 8058); the secret in the address is what proves it.
@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
@page
def stop(request: HttpRequest, *, request_id: str, secret: str) -> HttpResponse:
    """End the mails of one request: a GET asks, a POST does it. A link of an address that is gone is not found."""
    if not mails.stops(request_id, secret):
        raise RequestNotFound
    if request.method == "POST":
        mails.forget_address(request_id)
    return show(request, "shop/mail_stop.html", {"is_done": request.method == "POST"})


@require_safe
@page
def mailbox(request: HttpRequest) -> HttpResponse:
    """Show the latest mails, of all readers: only a shop that sends none has this page (settings.MAILBOX)."""
    return show(request, "shop/mailbox.html", {"mails": Email.objects.order_by("-id")[:MAX_SHOWN]})
