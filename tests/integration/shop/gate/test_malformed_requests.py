"""Proves that no malformed request gets a 5xx or leaves a traceback in the log of a real web process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings

from shop.logs import REPEATED_LINES
from shop.sandbox import signing
from tests.support.http_calls import Caller
from tests.support.malformed_requests import Result, Words, malformed_requests, send_all
from tests.support.servers.shop_processes import program_with, web_process
from tests.support.shopkeeping import make_sale
from tests.support.shown_sales import wait_until_shown
from tests.support.staff import browser_of
from tests.support.waiting import wait_until

COUNT = 22_000
SEED = 9
FORM = "application/x-www-form-urlencoded"


def words_of(web: Caller, sku: str) -> Words:
    """Return the words for one web process: a sale that it shows, a buyer's request in it, a superuser."""
    card = make_sale(sku, units=5, limit=1000)
    wait_until_shown(web, card)
    buyer = web.new_buyer()
    request_id = web.ask(card.slug, buyer).json()["request_id"]
    named = {"slug": card.slug, "id": request_id, "sale": f"{card.sale_id:x}", "sale_id": str(card.sale_id)}
    session = browser_of("superuser").cookies[settings.SESSION_COOKIE_NAME].value
    return Words(named, buyer.token, session, lambda body: signing.sign(body, secret=settings.SANDBOX_SECRET))


def send_malformed(web: Caller, words: Words, *, count: int) -> Result:
    return asyncio.run(send_all(malformed_requests(count, seed=SEED, words=words), port=web.port))


def faulty_lines(log: Path) -> list[str]:
    """Return the lines of a log that have a traceback, or tell an error of ours."""
    lines = log.read_text().splitlines()
    return [line[:2000] for line in lines if "Traceback" in line or "gate_error" in line or "request_failed" in line]


def test_malformed_requests_get_no_server_error_and_leave_no_traceback(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    with web_process(process_environment, folder=tmp_path) as web:
        result = send_malformed(web, words_of(web, new_sku()), count=COUNT)
        assert web.get("/healthz").status == 200
    assert not result.server_errors
    assert not faulty_lines(tmp_path / "web.log")
    assert result.statuses.total() == COUNT
    # Each way to refuse was used, and some requests were right by chance.
    assert {200, 201, 302, 303, 400, 401, 403, 404, 405, 413, 431} <= result.statuses.keys()


# Takes the guards out and serves: the check of a charset, the page for a bad request, the check of a notice's fields.
UNGUARDED = """
import shop.gate.pages, shop.payments.providers, shop.urls
shop.gate.pages.without_charset = lambda content_type: content_type
shop.payments.providers.Notice.__post_init__ = lambda notice: None
del shop.urls.handler400
"""


def test_control_without_the_guards_the_same_requests_get_server_errors(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    with web_process(process_environment, folder=tmp_path, program=program_with(UNGUARDED)) as web:
        result = send_malformed(web, words_of(web, new_sku()), count=COUNT // 10)
    broken = [request.split(b"\r\n")[0] for request, _head in result.server_errors]
    assert any(b"/notices" in line for line in broken)
    assert any(b"/notices" not in line for line in broken)
    assert faulty_lines(tmp_path / "web.log")


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("&".join(f"a{n}=1" for n in range(201)), {"Content-Type": f"{FORM}; charset=utf-7"}),
        ("&".join(f"a{n}=1" for n in range(201)), {"Content-Type": f"{FORM}; charset=utf-8"}),
        ("", {"Content-Type": f"{FORM}; charset=zlib"}),
        ("", {"Content-Type": f"{FORM}; charset=utf-7", "Cookie": f"csrftoken={'a' * 32}"}),
        ("", {"Content-Type": "multipart/form-data; boundary=", "Cookie": f"csrftoken={'a' * 32}"}),
    ],
)
def test_a_charset_or_too_many_fields_are_the_senders_mistake(web: Caller, query: str, headers: dict[str, str]) -> None:
    # 403 is what a press without a token gets: its form was not read.
    assert web.call("POST", f"/past/?{query}", headers=headers, body="a=1").status in (400, 403, 405)


def test_nul_in_a_query_is_the_senders_mistake_for_staff_too(web: Caller, shop_database: None) -> None:
    headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={browser_of().cookies[settings.SESSION_COOKIE_NAME].value}"}
    assert web.get("/admin/shop/product/?slug=a%00b", headers=headers).status == 400
    assert web.get("/admin/shop/product/?slug=a", headers=headers).status == 200


def test_a_host_that_is_not_ours_is_one_line_without_traceback(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    with web_process(process_environment, folder=tmp_path) as web:
        wait_until(lambda: web.get("/api/v1/sales").status == 200, what="it has read the sales")
        log = tmp_path / "web.log"
        before = log.read_text()
        answers = [web.get(path, headers={"Host": "evil.example"}) for path in ("/api/v1/sales", "/past/", "/")]
        assert [answer.status for answer in answers] == [400] * 3
        assert answers[0].json()["code"] == "invalid_request"
        wait_until(lambda: log.read_text().count("host_refused") == 3, what="it is in the log")
        said = log.read_text().removeprefix(before)
        lines = [line for line in said.splitlines() if "evil.example" in line]
        assert ["host_refused" in line for line in lines] == [True] * 3
        assert "Traceback" not in said
        # Controls: the shop's own host, also with another port; a probe that calls by address.
        assert web.get("/api/v1/sales", headers={"Host": "localhost:1"}).status == 200
        assert web.get("/healthz", headers={"Host": "10.0.0.1:8000"}).status == 200


# Serves with the bound of every place in the code held for an hour, because a slow machine takes more than ten seconds
# for a flood; and without a bound.
BOUNDED = 'import shop.logs\nshop.logs.Bounded.__init__.__kwdefaults__["seconds"] = 3600.0'
UNBOUNDED = "import shop.logs\nshop.logs.Bounded.filter = lambda bounded, record: True"
FLOOD = 3 * REPEATED_LINES


@pytest.mark.parametrize(
    ("change", "lines"), [(BOUNDED, REPEATED_LINES), (UNBOUNDED, FLOOD)], ids=["bounded", "control"]
)
def test_a_flood_of_hosts_that_are_not_ours_does_not_fill_the_log(
    process_environment: dict[str, str], tmp_path: Path, change: str, lines: int
) -> None:
    with web_process(process_environment, folder=tmp_path, program=program_with(change)) as web:
        found = {web.get("/past/", headers={"Host": f"evil{number}.example"}).status for number in range(FLOOD)}
    assert found == {400}
    assert (tmp_path / "web.log").read_text().count("host not allowed") == lines
