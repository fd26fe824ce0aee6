"""What the forms of the ticket page do: lead to payment, keep a delivery address, give a hold or a place back, replace
the secret link; and what that link does. Each form is a POST and a redirect; loading the address of such a form leads
to the ticket. Never decides: the services do.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import translation
from django.views.decorators.http import require_http_methods, require_safe

from inventory.exceptions import NotPayable, PaymentsLimited, RequestNotFound
from inventory.records import sale_id_of
from shop.orders import deliveries, holds, requests, ticket_links
from shop.payments import checkout
from shop.payments.providers import default_provider
from shop.web.delivery_form import DeliveryForm
from shop.web.languages import language_of
from shop.web.pages import LINK_COOKIE, known_buyer, page, reader_of, set_cookie
from shop.web.views import ticket_page


@require_http_methods(["GET", "HEAD", "POST"])
@page
def pay(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Begin to pay a hold and lead to the provider's page; what is paid already leads back to its ticket.

    So does a hold whose goods are sent as long as nobody knows where to: its ticket asks.
    """
    if request.method != "POST" or deliveries.is_missing(request_id):
        return to_ticket(request_id)
    try:
        with translation.override(language_of(request)):  # the provider shows what is bought in it
            url = checkout.begin_page(
                request_id,
                buyer=reader_of(request, request_id),
                provider_name=default_provider(),
                root=checkout.root_of(request),
            )
    except (NotPayable, PaymentsLimited) as error:
        return ticket_page(request, request_id, error=error)
    return HttpResponseRedirect(url, status=303) if url else to_ticket(request_id)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_delivery(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Keep the delivery address of the form, or delete the one that is kept; for all who may open the ticket."""
    if request.method != "POST":
        return to_ticket(request_id)
    requests.look_up(request_id, buyer=reader_of(request, request_id))
    if "delete" in request.POST:
        deliveries.forget_address(request_id)
        return to_ticket(request_id)
    form = DeliveryForm(request.POST)
    if not form.is_valid():
        return ticket_page(request, request_id, delivery_form=form)
    try:
        deliveries.keep_address(request_id, form.cleaned_data)
    except NotPayable as error:
        return ticket_page(request, request_id, error=error)
    return to_ticket(request_id)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def cancel(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Give up a hold, or a place in line."""
    if request.method != "POST":
        return to_ticket(request_id)
    if sale_id_of(request_id) is None:
        raise RequestNotFound
    try:
        holds.cancel(request_id, buyer=reader_of(request, request_id))
    except NotPayable as error:
        return ticket_page(request, request_id, error=error)
    return to_ticket(request_id)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def replace_link(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Replace the secret link; only the buyer's own browser may, not one that was opened by the link."""
    if request.method == "POST":
        requests.look_up(request_id, buyer=known_buyer(request) or "")
        ticket_links.replace_link(request_id)
    return to_ticket(request_id)


def open_link(request: HttpRequest, *, request_id: str, secret: str) -> HttpResponse:
    """Exchange the secret of a link for a cookie and lead to the ticket, so that the address with the secret is left.

    No page is shown at that address, and a browser tells nobody that it came from there.
    """
    response = exchange(request, request_id=request_id, secret=secret)
    response["Referrer-Policy"] = "no-referrer"
    return response


@require_safe
@page
def exchange(request: HttpRequest, *, request_id: str, secret: str) -> HttpResponse:
    """Answer a link. Raises RequestNotFound for one that is not valid, or not any more."""
    if not ticket_links.opens(request_id, secret):
        raise RequestNotFound
    response = to_ticket(request_id)
    set_cookie(response, name=LINK_COOKIE, value=secret, path=response["Location"])
    return response


def to_ticket(request_id: str) -> HttpResponse:
    """Lead to the ticket: also who reloads the page of a refused press, and ticket.js, which loads where it is."""
    return HttpResponseRedirect(reverse("ticket", args=[request_id]), status=303)
