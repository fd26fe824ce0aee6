"""The page on which a buyer shows that they read an e-mail address, also without script: it mails a code, takes it,
and leaves the proof in a cookie of the sale's page. Never keeps an address.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from inventory.exceptions import FairdropError
from inventory.redis import clocks
from shop import buyers
from shop.access import emails
from shop.access.codes import MAX_TYPED
from shop.access.emails import MAX_ADDRESS_LENGTH, EmailProof
from shop.client_address import client_address, network_of
from shop.orders import email_codes
from shop.payments import checkout
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from shop.web.languages import language_of
from shop.web.pages import EMAIL_COOKIE, cookies_of, page, set_cookie, show, token_to_give
from shop.web.sale_presenter import milliseconds


@require_http_methods(["GET", "HEAD", "POST"])
@page
def email_page(request: HttpRequest, *, slug: str) -> HttpResponse:
    """Ask for the address, mail the code, ask for it, give the proof. Raises Unauthenticated for a foreign token."""
    card = catalogue.find_sale(slug)
    try:
        email_codes.refuse_unasked(card)
    except FairdropError:
        return HttpResponseRedirect(reverse("sale", args=[slug]))
    token = token_to_give(request)
    buyer = buyers.verify_token(token or buyers.token_sent(cookies_of(request)))
    address = request.POST.get("address", "").strip()[: MAX_ADDRESS_LENGTH + 1]
    code, error, proof = request.POST.get("code", "")[:MAX_TYPED], None, None
    try:
        if request.method == "POST":
            proof = take_form(request, card, buyer=buyer, address=address)
    except FairdropError as refused:
        error = refused
    was_sent = bool(address) and is_mailed(error, took_code="code" in request.POST)
    context = {**context_of(card, address, proof=proof, was_sent=was_sent), "code": code}
    response = show(request, "shop/email.html", context, error=error)
    if token:
        set_cookie(response, name=buyers.COOKIE_NAME, value=token)
    if proof:
        path = reverse("sale", args=[slug])
        set_cookie(response, name=EMAIL_COOKIE, value=proof.text, path=path, max_age=emails.PROOF_SECONDS)
    return response


def take_form(request: HttpRequest, card: SaleCard, *, buyer: str, address: str) -> EmailProof | None:
    """Mail the code, or take the one that was typed and return the proof. Raises what email_codes and emails do."""
    network = network_of(client_address(request))
    if "code" in request.POST:
        return emails.redeem(request.POST["code"], card, address=address, buyer=buyer, network=network)
    root, language = checkout.root_of(request), language_of(request)
    email_codes.send_code(card, address=address, buyer=buyer, network=network, language=language, root=root)
    return None


def is_mailed(error: FairdropError | None, *, took_code: bool) -> bool:
    """Say whether there is a mail with a code: also when that code could not be checked, but not when none was sent."""
    return error is None or (error.code != "invalid_request" and (took_code or error.code != "unavailable"))


def context_of(card: SaleCard, address: str, *, proof: EmailProof | None, was_sent: bool) -> dict[str, object]:
    """Return what the page shows. was_sent: a code was mailed, so the page asks for it; opens_at: for this address."""
    until = proof and datetime.fromtimestamp(proof.expires_at, UTC)
    opens_at = card.public_at if proof and card.public_at and not proof.is_listed else card.opens_at
    opens_ms = milliseconds(opens_at) if opens_at > clocks.now() else 0
    shown = {"card": card, "address": address, "was_sent": was_sent, "proof": proof, "until": until}
    return {**shown, "opens_at": opens_at, "opens_ms": opens_ms}
