"""Every address that the shop had at revision c612c29 is still one, for bookmarks and for programs of others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shop import buyers
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.http_calls import Caller
from tests.support.paying import begin

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
GET = (
    "/",
    "/sales/{slug}/",
    "/requests/{request_id}/",
    "/admin/inventory/stock/live/",
    "/admin/",
    "/favicon.ico",
    "/healthz",
    "/readyz",
    "/metrics",
    "/sandbox/pay/{reference}/",
    "/api/v1/about",
    "/api/v1/sales",
    "/api/v1/sales/{slug}",
    "/api/v1/sales/{slug}/audit",
    "/api/v1/requests/{request_id}",
)
# Called with nothing in them, so that most are refused: by what is there, not because nothing is.
POST = (
    "/requests/{request_id}/payment/",
    "/requests/{request_id}/cancel/",
    "/language/",
    "/api/v1/buyers",
    "/api/v1/sales/{slug}/requests",
    "/api/v1/requests/{request_id}/payment",
    "/api/v1/requests/{request_id}/cancel",
    "/api/v1/tickets/restore",
    "/api/v1/payments/sandbox/notices",
)
# A stream has no end: that it may only be read is answered at once.
STREAMS = ("/api/v1/sales/{slug}/events", "/api/v1/requests/{request_id}/events")
UNKNOWN = ("/nothing/", "/api/v1/nothing", "/requests/{request_id}/nothing/", "/api/v1/sales/{slug}/nothing")


def test_every_address_of_before_is_still_one(web: Caller, shown_sale: Callable[..., SaleCard]) -> None:
    """The control: addresses that never were are not found, by either method."""
    card = shown_sale(units=1)
    buyer, token = buyers.issue_buyer()
    (request_id,) = road.queue(card, buyer)
    road.settle_line(card)
    names = {"slug": card.slug, "request_id": request_id, "reference": begin(request_id).reference}
    cookie = {"Cookie": f"{buyers.COOKIE_NAME}={token}"}

    def statuses(method: str, paths: tuple[str, ...]) -> dict[str, int]:
        return {path: web.call(method, path.format(**names), headers=cookie).status for path in paths}

    assert set(statuses("GET", GET).values()) <= {200, 301, 302, 401, 403}
    assert {404, 405} & set(statuses("POST", POST).values()) == set()
    assert set(statuses("POST", STREAMS).values()) == {405}
    assert {**statuses("GET", UNKNOWN), **statuses("POST", UNKNOWN)} == dict.fromkeys(UNKNOWN, 404)
