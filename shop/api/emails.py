"""The calls of the API by which a buyer shows that they read an e-mail address: a code is mailed, and sent back.
Never lets an error out but as a problem.
"""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse

from inventory.exceptions import InvalidRequest
from shop.access import emails
from shop.api.actions import caller, read_object
from shop.api.views import api_call
from shop.client_address import client_address, network_of
from shop.orders import email_codes
from shop.payments import checkout
from shop.sales import catalogue
from shop.web.languages import language_of


@api_call("POST")
def send_code(request: HttpRequest, slug: str) -> JsonResponse:
    """POST /api/v1/sales/<slug>/emails: mail a code to an address; the answer is the same for every address."""
    buyer, card = caller(request), catalogue.find_sale(slug)
    email_codes.send_code(
        card,
        address=_texts(request, "address")["address"],
        buyer=buyer,
        network=network_of(client_address(request)),
        language=language_of(request),
        root=checkout.root_of(request),
    )
    return JsonResponse({"code_seconds": emails.CODE_SECONDS}, status=202)


@api_call("POST")
def give_proof(request: HttpRequest, slug: str) -> JsonResponse:
    """POST /api/v1/sales/<slug>/emails/proofs: the proof, for the code that came with the mail."""
    buyer, card = caller(request), catalogue.find_sale(slug)
    email_codes.refuse_unasked(card)
    typed, network = _texts(request, "address", "code"), network_of(client_address(request))
    proof = emails.redeem(typed["code"], card, address=typed["address"], buyer=buyer, network=network)
    return JsonResponse(proof.shown(), status=201)


def _texts(request: HttpRequest, *names: str) -> dict[str, str]:
    """Return the texts of the body, which must have all of them. Raises InvalidRequest, TooLarge."""
    found: dict[str, str] = read_object(request, dict.fromkeys(names, str))
    for name in names:
        if name not in found:
            raise InvalidRequest(f"{name} is missing")
    return found
