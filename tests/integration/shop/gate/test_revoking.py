"""Staff revoke a network in a sale: nobody is let in from it, nor with a token that was given there, and people in line
keep their place. Tokens that pages give are counted, and no page is refused. Uses a real web process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from inventory.exceptions import InvalidRequest
from shop.client_address import network_mark
from shop.models import Sale, StaffAct
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support.http_calls import JSON, Answer, Buyer, Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import make_sale
from tests.support.shown_sales import shown_sales
from tests.support.waiting import wait_until

HERE, NEIGHBOUR, THERE = "192.0.2.1", "192.0.2.9", "198.51.100.1"
AT_ONCE = 3
ACT = {"actor": "ada", "reason": "one script, forty tokens"}
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
REVOKED = (403, "network_revoked")


@pytest.fixture
def web(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Caller]:
    given = {"FAIRDROP_TRUSTED_PROXIES": "127.0.0.0/8", "FAIRDROP_RATE_OF_BUYERS": f"{AT_ONCE}:0.001"}
    with web_process({**process_environment, **given}, folder=tmp_path) as caller:
        yield caller


def new_buyer(web: Caller, *, where: str) -> Buyer:
    made = web.call("POST", "/api/v1/buyers", headers={"X-Forwarded-For": where}).json()
    return Buyer(made["buyer"], made["token"])


def press(web: Caller, card: SaleCard, buyer: Buyer, *, where: str, key: str = "") -> Answer:
    headers = {**JSON, **buyer.headers, "X-Forwarded-For": where, **({"Idempotency-Key": key} if key else {})}
    return web.call("POST", f"/api/v1/sales/{card.slug}/requests", body='{"quantity": 1}', headers=headers)


def said(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json().get("code", "")


def test_a_revoked_network_is_let_in_no_more_and_its_places_stay(web: Caller, new_sku: Callable[[], str]) -> None:
    """The control is the same press from elsewhere with a token of elsewhere, and everything before the act."""
    # So many that presses before the act is known here, and after it, never reach the limit.
    card, keys = shown_sales(web, new_sku)(units=30_000, limit=30_000), map(str, count())
    early, given_there, other = (new_buyer(web, where=each) for each in (HERE, NEIGHBOUR, THERE))
    first = press(web, card, early, where=HERE, key="early")
    assert first.status == 202
    sale_control.revoke_network(card.slug, network=HERE, **ACT)
    wait_until(
        lambda: said(press(web, card, given_there, where=NEIGHBOUR, key=next(keys))) == REVOKED, what="it is refused"
    )
    assert said(press(web, card, given_there, where=THERE, key=next(keys))) == REVOKED  # the token was given there
    assert said(press(web, card, other, where=HERE)) == REVOKED
    assert press(web, card, other, where=THERE).status == 202
    again = press(web, card, early, where=HERE, key="early")
    assert (again.status, again.json()["seq"]) == (200, first.json()["seq"])
    assert said(press(web, card, early, where=HERE, key="late")) == REVOKED
    assert press(web, shown_sales(web, new_sku)(units=5), given_there, where=HERE).status == 202  # another sale
    body = "quantity=1&idempotency_key=first-press"
    page = web.call("POST", f"/sales/{card.slug}/", body=body, headers={**FORM, "X-Forwarded-For": HERE})
    assert page.status == 403
    assert b"takes no more requests from your network" in page.body
    sale_control.restore_network(card.slug, network=network_mark("192.0.2"), **ACT)
    wait_until(
        lambda: press(web, card, given_there, where=HERE, key=next(keys)).status == 202, what="it is let in again"
    )


def test_tokens_of_pages_are_counted_and_no_page_is_refused(web: Caller, new_sku: Callable[[], str]) -> None:
    card = shown_sales(web, new_sku)(units=50)
    path = f"/sales/{card.slug}/"
    wait_until(lambda: web.get(path, headers={"X-Forwarded-For": "203.0.113.1"}).status == 200)

    def has_token(answer: Answer) -> bool:
        assert answer.status == 200
        return "buyer=" in answer.headers.get("set-cookie", "")

    found = [has_token(web.get(path, headers={"X-Forwarded-For": HERE})) for _ in range(AT_ONCE + 2)]
    assert found == [True] * AT_ONCE + [False] * 2
    assert web.call("POST", "/api/v1/buyers", headers={"X-Forwarded-For": HERE}).status == 429  # one bucket for both
    # Neither does a page that Django makes for one reader alone give more.
    with_ticket = {"X-Forwarded-For": HERE, "Cookie": "ticket=x"}
    assert not has_token(web.get(path, headers=with_ticket))
    assert has_token(web.get(path, headers={**with_ticket, "X-Forwarded-For": THERE}))
    # The press makes one.
    body = "quantity=1&idempotency_key=first-press"
    pressed = web.call("POST", path, body=body, headers={**FORM, "X-Forwarded-For": HERE})
    assert (pressed.status, "buyer=" in pressed.headers["set-cookie"]) == (303, True)


@pytest.mark.parametrize("text", ["192.0.2.77", "192.0.2.0/24", " 192.0.2.0/25 ", "mark"])
def test_a_network_may_be_named_in_several_ways(shop_database: None, new_sku: Callable[[], str], text: str) -> None:
    card = make_sale(new_sku(), units=5)
    mark = network_mark("192.0.2")
    sale_control.revoke_network(card.slug, network=mark if text == "mark" else text, **ACT)
    shown = catalogue.find_sale(card.slug)
    assert shown.revokes("192.0.2", mark="")
    assert shown.revokes("198.51.100", mark=mark)
    assert not shown.revokes("198.51.100", mark="")
    act = StaffAct.objects.get(sale_id=card.sale_id)
    assert (act.act, act.actor, act.reason, act.detail) == ("revoke", ACT["actor"], ACT["reason"], f"network {mark}")


@pytest.mark.parametrize("text", ["", "rubbish", "192.0.0.0/16", "2001:db8::/32", "192.0.2", "'; DROP"])
def test_what_is_no_network_changes_nothing(shop_database: None, new_sku: Callable[[], str], text: str) -> None:
    card = make_sale(new_sku(), units=5)
    with pytest.raises(InvalidRequest):
        sale_control.revoke_network(card.slug, network=text, **ACT)
    assert Sale.objects.get(pk=card.sale_id).revoked_networks == ""
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()


def test_the_list_of_a_sale_is_bounded(shop_database: None, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=5)
    full = " ".join(f"{number:012x}" for number in range(sale_control.MAX_REVOKED))
    Sale.objects.filter(pk=card.sale_id).update(revoked_networks=full)
    with pytest.raises(InvalidRequest, match="at most 100"):
        sale_control.revoke_network(card.slug, network=HERE, **ACT)
    with pytest.raises(InvalidRequest, match="already"):
        sale_control.revoke_network(card.slug, network="000000000000", **ACT)
    with pytest.raises(InvalidRequest, match="not revoked"):
        sale_control.restore_network(card.slug, network=HERE, **ACT)
