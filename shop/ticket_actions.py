"""What the forms of the ticket page do: lead to payment, give a hold or a place back. Each is a POST and a redirect;
who loads the address of such a form is led to the ticket. Never decides: the services do. Called by urls.py.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from inventory.exceptions import NotPayable, RequestNotFound
from inventory.tickets import sale_id_of
from shop import checkout, holds
from shop.payment_providers import default_provider
from shop.views import known_buyer, page, ticket_page


@require_http_methods(["GET", "HEAD", "POST"])
@page
def pay(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Begin to pay a hold and lead to the provider's page; what is paid already leads back to its ticket."""
    if request.method != "POST":
        return to_ticket(request_id)
    try:
        url = checkout.begin_page(
            request_id,
            buyer=known_buyer(request) or "",
            provider_name=default_provider(),
            root=checkout.root_of(request),
        )
    except NotPayable as error:
        return ticket_page(request, request_id, error=error)
    return HttpResponseRedirect(url, status=303) if url else to_ticket(request_id)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def cancel(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Give up a hold, or a place in line."""
    if request.method != "POST":
        return to_ticket(request_id)
    if sale_id_of(request_id) is None:
        raise RequestNotFound
    try:
        holds.cancel(request_id, buyer=known_buyer(request) or "")
    except NotPayable as error:
        return ticket_page(request, request_id, error=error)
    return to_ticket(request_id)


def to_ticket(request_id: str) -> HttpResponse:
    """Lead to the ticket: also who reloads the page of a refused press, and ticket.js, which loads where it is."""
    return HttpResponseRedirect(reverse("ticket", args=[request_id]), status=303)
