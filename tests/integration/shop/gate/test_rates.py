"""How often one address may ask, get a token, or open a stream; the next is told when to come again, and who stands
elsewhere goes on. Nothing is exempt, this machine neither. Uses a real web process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inventory import redis
from inventory.line import reading
from shop.models import Sale
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import JSON, Answer, Buyer, Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shown_sales import shown_sales

AT_ONCE = 4
# So rarely that none comes back while a test runs.
RATE = f"{AT_ONCE}:0.001"
HERE, THERE = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "198.51.100.1"}


@contextmanager
def web_with(
    environment: dict[str, str], folder: Path, new_sku: Callable[[], str], **settings: str
) -> Iterator[tuple[Caller, SaleCard]]:
    """Run a web process with its own limits, with a sale."""
    given = {f"FAIRDROP_{name}": value for name, value in settings.items()}
    with web_process({**environment, "FAIRDROP_TRUSTED_PROXIES": "127.0.0.0/8", **given}, folder=folder) as web:
        yield web, shown_sales(web, new_sku)(units=50)


def press(web: Caller, card: SaleCard, buyer: Buyer, *, where: dict[str, str], key: str = "") -> Answer:
    headers = {**JSON, **buyer.headers, **where, **({"Idempotency-Key": key} if key else {})}
    return web.call("POST", f"/api/v1/sales/{card.slug}/requests", body='{"quantity": 1}', headers=headers)


def assert_told_to_wait(answer: Answer) -> None:
    assert (answer.status, answer.json()["code"]) == (429, "rate_limited")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("rate", [RATE, "0"])
def test_an_address_gets_so_many_tokens_and_is_told_when_to_come_again(
    rate: str, process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """The control is no limit."""
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_BUYERS=rate) as (web, _):
        found = [web.call("POST", "/api/v1/buyers", headers=HERE) for _ in range(AT_ONCE + 2)]
        most = AT_ONCE if rate != "0" else AT_ONCE + 2
        assert [answer.status for answer in found] == [201] * most + [429] * (AT_ONCE + 2 - most)
        if rate != "0":
            assert_told_to_wait(found[-1])
        assert web.call("POST", "/api/v1/buyers", headers=THERE).status == 201


@pytest.mark.parametrize("page", ["", "pass/", "email/"])
def test_a_page_that_gives_a_token_counts_as_a_call_for_one(
    page: str, process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_BUYERS=RATE) as (web, card):
        Sale.objects.filter(pk=card.sale_id).update(pass_mode="always", email_mode="always")
        found = [web.call("GET", f"/sales/{card.slug}/{page}?of=django", headers=HERE) for _ in range(AT_ONCE + 2)]
        assert ["set-cookie" in answer.headers for answer in found] == [True] * AT_ONCE + [False] * 2
        assert "set-cookie" in web.call("GET", f"/sales/{card.slug}/{page}", headers=THERE).headers


def test_this_machine_is_counted_as_any_other(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_BUYERS=RATE) as (web, _):
        found = [web.call("POST", "/api/v1/buyers").status for _ in range(AT_ONCE + 1)]
    assert found == [201] * AT_ONCE + [429]


def test_a_press_that_is_sent_again_is_not_counted_and_looks_are_not(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_ASKS=RATE) as (web, card):
        buyer = web.new_buyer()
        first = press(web, card, buyer, where=HERE, key="one")
        assert first.status == 202
        again = [press(web, card, buyer, where=HERE, key="one") for _ in range(3 * AT_ONCE)]
        assert {(answer.status, answer.json()["seq"]) for answer in again} == {(200, first.json()["seq"])}
        looks = [web.status(first.json()["request_id"], buyer, timeout_seconds=30) for _ in range(3 * AT_ONCE)]
        assert {look.status for look in looks} == {200}
        others = [press(web, card, web.new_buyer(), where=HERE) for _ in range(AT_ONCE)]
        assert [answer.status for answer in others] == [202] * (AT_ONCE - 1) + [429]
        assert_told_to_wait(others[-1])
        assert press(web, card, web.new_buyer(), where=THERE).status == 202


def test_a_refused_press_changes_nothing_and_its_body_is_not_read(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """Whatever stands in the body, the answer is the same; the control is another address."""
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_ASKS=RATE) as (web, card):
        for _ in range(AT_ONCE):
            assert press(web, card, web.new_buyer(), where=HERE).status == 202
        path, buyer = f"/api/v1/sales/{card.slug}/requests", web.new_buyer()
        for body in ("no JSON", '{"quantity": 0}', '{"quantity": 1}'):
            assert_told_to_wait(web.call("POST", path, body=body, headers={**JSON, **buyer.headers, **HERE}))
        assert web.call("POST", path, body="no JSON", headers={**JSON, **buyer.headers, **THERE}).status == 400
        figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
        assert figures is not None
        assert figures.admitted == AT_ONCE


def test_presses_of_the_page_are_counted_with_those_of_the_api(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_ASKS=RATE) as (web, card):
        for _ in range(AT_ONCE):
            assert press(web, card, web.new_buyer(), where=HERE).status == 202
        form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        body, path = "quantity=1&idempotency_key=first-press", f"/sales/{card.slug}/"
        assert_told_to_wait(web.call("POST", path, body=body, headers={**form, **HERE}))
        assert web.call("POST", path, body=body, headers={**form, **THERE}).status == 303


def test_who_presses_without_script_reads_that_it_was_too_often_and_nothing_presses_again(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """The page leads to its address by a GET, which presses nothing. The control: a script is told in JSON."""
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_ASKS=RATE) as (web, card):
        for _ in range(AT_ONCE):
            assert press(web, card, web.new_buyer(), where=HERE).status == 202
        form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", **HERE}
        body, path = "quantity=1&idempotency_key=first-press", f"/sales/{card.slug}/"
        assert_told_to_wait(web.call("POST", path, body=body, headers={**form, "Accept": "application/json"}))
        page = {"Accept": "text/html,*/*;q=0.8"}
        of_api = f"/api/v1/sales/{card.slug}/requests"
        assert_told_to_wait(web.call("POST", of_api, body="{}", headers={**JSON, **HERE, **page}))
        told = web.call("POST", path, body=body, headers={**form, **page})
        assert (told.status, told.headers["content-type"]) == (429, "text/html; charset=utf-8")
        assert "press it once more" in told.body.decode()
        assert re.fullmatch("[0-9]+", told.headers["refresh"])  # no form, no script: a number of seconds alone
        assert int(told.headers["refresh"]) >= 1
        assert web.call("GET", path, headers=HERE).status == 200
        figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
        assert figures is not None
        assert figures.admitted == AT_ONCE


@pytest.mark.parametrize(("query", "leads_to"), [("", "/"), ("?next=/tickets/", "/tickets/"), ("?next=//x.test/", "/")])
def test_where_a_language_was_chosen_a_get_only_leads_back(web: Caller, query: str, leads_to: str) -> None:
    answer = web.call("GET", f"/language/{query}&language=en" if query else "/language/?language=en")
    assert (answer.status, answer.headers["location"]) == (303, leads_to)
    assert "set-cookie" not in answer.headers


def test_streams_that_are_opened_are_counted(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_STREAMS=RATE) as (web, card):
        path, found = f"/api/v1/sales/{card.slug}/events", []
        for _ in range(AT_ONCE + 1):
            with web.follow(path, headers=HERE) as (head, _lines):
                found.append(head.status)
        assert found == [200] * AT_ONCE + [429]
        with web.follow(path, headers=THERE) as (head, _lines):
            assert head.status == 200


@pytest.mark.parametrize("limit", [2, 0])
def test_one_network_gets_so_many_units_whatever_its_addresses_and_tokens(
    limit: int, process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """The control is no limit."""
    with web_with(process_environment, tmp_path, new_sku) as (web, _):
        card = shown_sales(web, new_sku)(units=50, network_limit=limit)
        found = [
            press(web, card, web.new_buyer(), where={"X-Forwarded-For": f"192.0.2.{number}"}) for number in range(4)
        ]
        most = limit or 4
        assert [answer.status for answer in found] == [202] * most + [429] * (4 - most)
        if limit:
            assert_told_to_wait(found[-1])
            form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", **HERE}
            body = "quantity=1&idempotency_key=first-press"
            page = web.call("POST", f"/sales/{card.slug}/", body=body, headers=form)
            assert page.status == 429
            assert b"Your network has had its share of this sale" in page.body
        assert press(web, card, web.new_buyer(), where=THERE).status == 202


RUBBISH = ["", ",", "rubbish", "x" * 10_000, ",".join(["203.0.113.9"] * 1_000), "192.0.2.1, ;DROP", "[::1", "é"]


@pytest.mark.parametrize("number", range(len(RUBBISH)))
def test_rubbish_in_front_of_what_our_proxy_added_changes_nothing(
    number: int, process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    where = {"X-Forwarded-For": f"{RUBBISH[number]}, 192.0.2.1".encode("latin-1").decode("latin-1")}
    with web_with(process_environment, tmp_path, new_sku, RATE_OF_BUYERS=RATE) as (web, _):
        found = [web.call("POST", "/api/v1/buyers", headers=where).status for _ in range(AT_ONCE)]
        assert found == [201] * AT_ONCE
        assert web.call("POST", "/api/v1/buyers", headers=HERE).status == 429
        alone = web.call("POST", "/api/v1/buyers", headers={"X-Forwarded-For": RUBBISH[number]})
        assert alone.status == 201


def test_a_sale_that_does_not_say_lets_a_network_in_for_a_twentieth(
    shop_database: None, new_sku: Callable[[], str]
) -> None:
    from tests.support.shopkeeping import make_sale

    card = make_sale(new_sku(), units=400, network_limit=None)
    assert card.network_limit == 20
    assert make_sale(new_sku(), units=12, network_limit=None).network_limit == 10
    assert make_sale(new_sku(), units=12, limit=11, network_limit=None).network_limit == 11
    Sale.objects.filter(pk=card.sale_id).update(per_network_limit=7)
    assert catalogue.find_sale(card.slug).network_limit == 7
