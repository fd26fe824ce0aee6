"""The page on which a browser without script waits for a pass: it reloads itself, and leaves the pass in a cookie of
the sale's page. Never gives one network more than a few.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from inventory.redis import clocks
from shop import buyers
from shop.access import waiting
from shop.client_address import client_address, network_of
from shop.models import Sale
from shop.sales import catalogue
from shop.web.pages import PASS_COOKIE, WAIT_COOKIE, cookies_of, page, set_cookie, show, token_to_give

LOOK_SECONDS, FULL_LOOK_SECONDS = 10, 30


@require_safe
@page
def pass_page(request: HttpRequest, *, slug: str) -> HttpResponse:
    """Begin to wait, go on waiting, or give the pass. Raises Unauthenticated for a token that cannot be verified."""
    card = catalogue.find_sale(slug)
    address = reverse("sale", args=[slug])
    if card.pass_mode == Sale.PassMode.NEVER or card.retired_at or card.state_at(clocks.now()) == "closed":
        return HttpResponseRedirect(address)
    token = token_to_give(request)
    buyer = buyers.verify_token(token or buyers.token_sent(cookies_of(request)))
    wait = request.COOKIES.get(WAIT_COOKIE, "")
    left = waiting.seconds_left(wait, card, buyer=buyer)
    if left is None:
        wait, left = waiting.begin_wait(card, buyer=buyer), settings.PASS_WAIT_SECONDS
    network = network_of(client_address(request))
    given = None if left else waiting.give_pass(wait, card, buyer=buyer, network=network)
    context = {"card": card, "given": given, "left": left, "most": waiting.MAX_OF_A_NETWORK}
    context["refresh_seconds"] = min(left + 1, LOOK_SECONDS) if left else FULL_LOOK_SECONDS
    context["until"] = given and datetime.fromtimestamp(given.expires_at, UTC)
    response = show(request, "shop/pass.html", context, status=200 if given or left else 429)
    if token:
        set_cookie(response, name=buyers.COOKIE_NAME, value=token)
    set_cookie(response, name=WAIT_COOKIE, value=wait, path=request.path, max_age=settings.PASS_SECONDS)
    if given:
        set_cookie(response, name=PASS_COOKIE, value=given.text, path=address, max_age=settings.PASS_SECONDS)
    return response
