"""Every address that the shop had at revision c612c29 is still one, for bookmarks and for programs of others.

Pages of staff take the parameters of before, too, whatever their fields are called now.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shop import buyers
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.http_calls import Caller
from tests.support.paying import begin
from tests.support.shopkeeping import make_sale
from tests.support.staff import browser_of
from tests.support.waiting import wait_until

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
    wait_until(lambda: web.get("/readyz").status == 200, what="both stores answer in time")
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


@pytest.mark.parametrize(("chosen", "listed"), [("paused", 1), ("on", 0)])
def test_a_bookmark_of_paused_sales_still_lists_them(new_sku: Callable[[], str], chosen: str, listed: int) -> None:
    card = make_sale(new_sku(), units=1, operator_state="paused")
    page = browser_of("manager").get("/admin/shop/sale/", {"q": card.sku, "switch__exact": chosen})
    assert [sale.pk for sale in page.context["cl"].result_list] == [card.sale_id] * listed


@pytest.mark.parametrize(("name", "begins_with"), [("room", "7"), ("line_capacity", "7"), ("nothing", "200")])
def test_a_bookmark_of_a_new_sale_still_gives_its_line_capacity(name: str, begins_with: str) -> None:
    """The control: a parameter that never was."""
    form = browser_of("manager").get("/admin/shop/sale/add/", {name: "7"}).context["adminform"].form
    assert str(form["line_capacity"].value()) == begins_with
