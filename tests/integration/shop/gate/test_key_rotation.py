"""Keys are rotated while people buy: buyers move between two real web processes in the middle of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex

import pytest

from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.http_calls import Answer, Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database")
OLD, NEW = "an-old-key-of-32-characters-----", "a-new-key-of-32-characters------"
# What the process that was restarted knows, and what the other one still does.
STEPS = {
    "append": (f"{OLD},{NEW}", OLD),
    "move to the front": (f"{NEW},{OLD}", f"{OLD},{NEW}"),
    "take the old one off": (NEW, f"{NEW},{OLD}"),
}


def cookie_in(answer: Answer) -> str:
    """Return the buyer cookie that an answer sets, or ''."""
    found = answer.headers.get("set-cookie", "")
    return found.partition(";")[0].removeprefix("buyer=") if found.startswith("buyer=") else ""


def page(web: Caller, card: SaleCard, *, cookie: str) -> str:
    """Look at the sale's page; return the cookie that the browser has after it."""
    headers = {"Cookie": f"buyer={cookie}"} if cookie else {}
    return cookie_in(web.get(f"/sales/{card.slug}/", headers=headers)) or cookie


def ask(web: Caller, card: SaleCard, *, cookie: str, key: str) -> Answer:
    headers = {
        "Cookie": f"buyer={cookie}",
        "Origin": f"http://127.0.0.1:{web.port}",
        "Idempotency-Key": key,
        "Content-Type": "application/json",
    }
    return web.call("POST", f"/api/v1/sales/{card.slug}/requests", body='{"quantity": 1}', headers=headers)


@contextmanager
def two_processes(environment: dict[str, str], keys: tuple[str, str], *, folder: Path) -> Iterator[list[Caller]]:
    """Run two web processes, each with its own FAIRDROP_TOKEN_KEYS."""
    with ExitStack() as running:
        callers = []
        for number, own in enumerate(keys):
            (folder / str(number)).mkdir()
            process = web_process({**environment, "FAIRDROP_TOKEN_KEYS": own}, folder=folder / str(number))
            callers.append(running.enter_context(process))
        yield callers


def buyer_of(cookie: str) -> str:
    return cookie.partition(".")[0]


@pytest.mark.parametrize("step", STEPS)
def test_a_buyer_who_moves_between_processes_stays_the_same(
    step: str, process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    card = make_sale(new_sku(), units=5)
    with two_processes(process_environment, STEPS[step], folder=tmp_path) as (restarted, other):
        for first, second in ((restarted, other), (other, restarted)):
            cookie = page(first, card, cookie="")
            key = token_hex(8)
            asked = ask(first, card, cookie=cookie, key=key)
            assert asked.status == 202
            later = page(second, card, cookie=cookie)
            assert buyer_of(later) == buyer_of(cookie)
            repeated = ask(second, card, cookie=later, key=key)
            assert (repeated.status, repeated.json()["request_id"]) == (200, asked.json()["request_id"])
    road.settle_line(card)


def test_a_key_put_in_front_at_once_costs_no_buyer_their_cookie(
    process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """The step that the procedure leaves out: a process without the new key refuses, and leaves the cookie alone."""
    card = make_sale(new_sku(), units=5)
    with two_processes(process_environment, (f"{NEW},{OLD}", OLD), folder=tmp_path) as (restarted, other):
        cookie, key = page(restarted, card, cookie=""), token_hex(8)
        assert ask(restarted, card, cookie=cookie, key=key).status == 202
        assert page(other, card, cookie=cookie) == cookie
        assert ask(other, card, cookie=cookie, key=key).status == 401
        assert ask(restarted, card, cookie=cookie, key=key).status == 200
