"""Staff see the audit of a sale in the admin, as the API shows it. Real servers."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from inventory.redis import keys
from shop.sales.audit import audit_sale
from shop.sales.catalogue import SaleCard
from tests.support.road import queue, run, settle_line
from tests.support.shopkeeping import make_sale
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    made = make_sale(new_sku(), units=1)
    queue(made, "ann", "bob")
    settle_line(made)
    return made


def page_of(card: SaleCard) -> str:
    return reverse("admin:shop_sale_audit", args=[card.sale_id])


def staff(*, superuser: bool = True) -> Client:
    client, name = Client(), f"staff-{token_hex(4)}"
    user = User.objects.create_superuser(name) if superuser else User.objects.create_user(name, is_staff=True)
    client.force_login(user)
    return client


def test_the_page_shows_what_the_api_shows(card: SaleCard) -> None:
    client = staff()
    shown = client.get(page_of(card)).content.decode()
    for finding in audit_sale(card.slug)["invariants"]:
        assert finding["name"].replace("'", "&#x27;") in shown
    assert "Every invariant holds." in shown
    run(("HINCRBY", keys.stock(card.sku), "queued", 1))
    shown = client.get(page_of(card)).content.decode()
    assert "Something is wrong." in shown
    assert "2 units queued, 1 by the records" in shown


def test_the_list_of_sales_leads_to_it_and_it_can_be_watched(card: SaleCard) -> None:
    client = staff()
    assert page_of(card) in client.get(reverse("admin:shop_sale_changelist"), {"q": card.slug}).content.decode()
    assert "Refresh" not in client.get(page_of(card)).headers
    assert client.get(page_of(card), {"watch": "1"}).headers["Refresh"] == "2"


def test_only_staff_who_may_see_sales_see_it(card: SaleCard) -> None:
    assert Client().get(page_of(card)).status_code == 302
    assert staff(superuser=False).get(page_of(card)).status_code == 403
    assert staff().get(reverse("admin:shop_sale_audit", args=[10**9])).status_code == 404


def test_without_redis_it_says_so(card: SaleCard) -> None:
    client = staff()
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        answer = client.get(page_of(card))
    assert answer.status_code == 503
    assert "errornote" in answer.content.decode()
