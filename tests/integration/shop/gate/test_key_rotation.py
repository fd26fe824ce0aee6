"""Keys are rotated while people buy: buyers move between two real web processes in the middle of each step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex

import pytest

from shop.sales import priming
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.http_calls import JSON, Answer, Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import make_sale
from tests.support.shown_sales import wait_until_shown

pytestmark = pytest.mark.usefixtures("shop_database")
OLD, NEW = "an-old-key-of-32-characters-----", "a-new-key-of-32-characters------"
# What the process that was restarted knows, and what the other one still does.
STEPS = {
    "append": (f"{OLD},{NEW}", OLD),
    "move to the front": (f"{NEW},{OLD}", f"{OLD},{NEW}"),
    "take the old one off": (NEW, f"{NEW},{OLD}"),
}
# The same of the keys that sign tickets: the new one moves to the front with the moment of that step; none goes.
BEGAN, MADE, MOVED = "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z"
OLD_LOG, NEW_LOG, FRONT_LOG = f"{BEGAN}={'A' * 43}", f"{MADE}={'B' * 42}A", f"{MOVED}={'B' * 42}A"
LOG_STEPS = {
    "append": (f"{OLD_LOG},{NEW_LOG}", OLD_LOG),
    "move to the front": (f"{FRONT_LOG},{OLD_LOG}", f"{OLD_LOG},{NEW_LOG}"),
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
def two_processes(
    environment: dict[str, str],
    keys: tuple[str, str],
    *,
    folder: Path,
    name: str = "FAIRDROP_TOKEN_KEYS",
    card: SaleCard | None = None,
) -> Iterator[list[Caller]]:
    """Run two web processes, each with its own keys in the variable `name`; both show `card`."""
    with ExitStack() as running:
        callers = []
        for number, own in enumerate(keys):
            (folder / str(number)).mkdir()
            process = web_process({**environment, name: own}, folder=folder / str(number))
            callers.append(running.enter_context(process))
            if card is not None:
                wait_until_shown(callers[-1], card)
        yield callers


def buyer_of(cookie: str) -> str:
    return cookie.partition(".")[0]


@pytest.mark.parametrize("step", STEPS)
def test_a_buyer_who_moves_between_processes_stays_the_same(
    step: str, process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    card = make_sale(new_sku(), units=5)
    with two_processes(process_environment, STEPS[step], folder=tmp_path, card=card) as (restarted, other):
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
    with two_processes(process_environment, (f"{NEW},{OLD}", OLD), folder=tmp_path, card=card) as (restarted, other):
        cookie, key = page(restarted, card, cookie=""), token_hex(8)
        assert ask(restarted, card, cookie=cookie, key=key).status == 202
        assert page(other, card, cookie=cookie) == cookie
        assert ask(other, card, cookie=cookie, key=key).status == 401
        assert ask(restarted, card, cookie=cookie, key=key).status == 200


def restore(web: Caller, ticket: str, *, headers: dict[str, str]) -> Answer:
    return web.call("POST", "/api/v1/tickets/restore", body=json.dumps({"ticket": ticket}), headers={**JSON, **headers})


def published(web: Caller) -> list[tuple[str, str | None]]:
    """Return from when until when each key signs, as the process publishes it, in its order."""
    return [(each["from"], each["until"]) for each in web.get("/.well-known/fairdrop-keys").json()]


@pytest.mark.parametrize("step", LOG_STEPS)
def test_a_ticket_of_either_process_brings_a_lost_place_back_at_the_other(
    step: str, process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    card = make_sale(new_sku(), units=5)
    keys = {"name": "FAIRDROP_LOG_KEYS", "folder": tmp_path}
    with two_processes(process_environment, LOG_STEPS[step], card=card, **keys) as (restarted, other):
        for first, second in ((restarted, other), (other, restarted)):
            buyer = first.new_buyer()
            asked = first.ask(card.slug, buyer).json()
            assert asked["ticket"].startswith("fdt2.")
            road.forget(card)
            priming.prime_sale(card.slug)
            restored = restore(second, asked["ticket"], headers=buyer.headers)
            assert (restored.status, restored.json()["seq"]) == (202, asked["seq"])
            repeated = second.ask(card.slug, buyer).json()
            again = restore(first, repeated["ticket"], headers=buyer.headers)
            assert (again.status, again.json()["request_id"]) == (200, asked["request_id"])


def test_a_log_key_put_in_front_at_once_is_not_read_by_the_other_process(
    process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """The control: the step that the procedure leaves out."""
    card = make_sale(new_sku(), units=5)
    keys = {"name": "FAIRDROP_LOG_KEYS", "folder": tmp_path, "card": card}
    with two_processes(process_environment, (f"{FRONT_LOG},{OLD_LOG}", OLD_LOG), **keys) as (restarted, other):
        buyer = restarted.new_buyer()
        asked = restarted.ask(card.slug, buyer).json()
        road.forget(card)
        priming.prime_sale(card.slug)
        refused = restore(other, asked["ticket"], headers=buyer.headers)
        assert (refused.status, refused.json()["code"]) == (400, "invalid_request")
        assert restore(restarted, asked["ticket"], headers=buyer.headers).status == 202


def test_the_published_keys_say_which_signs_and_which_has_signed(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    keys = {"name": "FAIRDROP_LOG_KEYS", "folder": tmp_path}
    with two_processes(process_environment, LOG_STEPS["move to the front"], **keys) as (moved, appended):
        assert published(appended) == [(BEGAN, None), (MADE, None)]
        assert published(moved) == [(MOVED, None), (BEGAN, MOVED)]
        names = [
            [(each["key"], each["public"]) for each in web.get("/.well-known/fairdrop-keys").json()]
            for web in (moved, appended)
        ]
        assert names[0] == names[1][::-1]
