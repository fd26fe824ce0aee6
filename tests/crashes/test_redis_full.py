"""Proves that a full Redis takes nobody new, and that everyone who was admitted before is decided and can pay.
A Valkey of its own with a small maxmemory that never evicts. Control: the same scripts without allow-oom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.test import override_settings

from inventory import redis
from inventory.audit import line
from inventory.exceptions import MemoryFull, RedisUnavailable
from inventory.locks.lock import Lock
from inventory.queues.queue import Queue
from inventory.redis import memory, scripts
from shop.models import Order, Sale
from shop.orders import requests
from shop.sales.catalogue import SaleCard
from shop.staff import control_room, sale_control
from tests.support import road
from tests.support.crashes.extra_shop import OwnStore, own_valkey
from tests.support.crashes.worker_shop import worker_process
from tests.support.http_calls import Answer, Buyer, Caller, answer_to
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import assert_books_balance, let_holds_end, make_sale, shop_of
from tests.support.waiting import wait_until

BUYERS, UNITS = 60, 40
ROOM_BYTES = 2 * 1024 * 1024
JUNK_BYTES = 16 * 1024
FLAG = "#!lua flags=allow-oom\n"
PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Shop:
    """A web process on a Valkey of its own, a sale, and who was admitted to it before the server was full."""

    web: Caller
    card: SaleCard
    environment: dict[str, str]
    folder: Path
    admitted: list[tuple[Buyer, str]]

    def post(self, name: str, buyer: Buyer, what: str) -> Answer:
        """Call payment or cancel."""
        return self.web.call("POST", f"/api/v1/requests/{name}/{what}", headers=buyer.headers)

    def states(self) -> list[str]:
        """Return what each of the admitted is told now."""
        return [self.web.status(name, buyer).json().get("state", "") for buyer, name in self.admitted]


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnStore]:
    with own_valkey(tmp_path) as store:
        yield store


@pytest.fixture
def shop(
    process_environment: dict[str, str],
    valkey: OwnStore,
    new_sku: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    """Admit a crowd, and then fill the server to its last byte."""
    monkeypatch.setattr(memory, "WATCH", memory.MemoryWatch())
    environment = {**process_environment, "REDIS_URL": valkey.url}
    with shop_of(environment), ExitStack() as running:
        card = make_sale(new_sku(), units=UNITS)
        web = running.enter_context(web_process(environment, folder=tmp_path))
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200)
        buyers = [web.new_buyer() for _ in range(BUYERS)]
        asked = [answer_to(partial(web.ask, card.slug, buyer)).json()["request_id"] for buyer in buyers]
        admitted = list(zip(buyers, asked, strict=True))
        fill(redis.connect(timeout_seconds=60))
        yield Shop(web, card, environment, tmp_path, admitted)


def fill(client: redis.Client) -> None:
    """Give the server little more than it uses, and write until it refuses."""
    client.config_set("maxmemory", client.info("memory")["used_memory"] + ROOM_BYTES)
    numbers = count()
    with suppress(*redis.FAILURES):
        while True:
            client.set(f"junk-{next(numbers)}", "x" * JUNK_BYTES)


def empty(client: redis.Client) -> None:
    client.unlink(*client.keys("junk-*"))


def test_a_full_server_takes_nobody_new_and_drains(shop: Shop) -> None:
    assert_refused(shop)
    with (
        worker_process("settler", shop.environment, folder=shop.folder),
        worker_process("expirer", shop.environment, folder=shop.folder),
    ):
        wait_until(lambda: shop.states().count("held") == UNITS, timeout_seconds=PATIENCE_SECONDS, what="held")
        wait_until(lambda: shop.states().count("waitlisted") == BUYERS - UNITS, what="the others wait")
        payer, giver, leaver, late = shop.admitted[0], shop.admitted[1], shop.admitted[-1], shop.admitted[2]
        assert shop.post(payer[1], payer[0], "payment").json()["state"] == "paid"
        assert shop.post(giver[1], giver[0], "cancel").json()["state"] == "cancelled"
        assert shop.post(leaver[1], leaver[0], "cancel").json()["state"] == "cancelled"
        let_holds_end(late[1])
        wait_until(lambda: shop.states().count("expired") == 1, timeout_seconds=PATIENCE_SECONDS, what="expired")
        wait_until(lambda: shop.states().count("held") == UNITS - 1, timeout_seconds=PATIENCE_SECONDS, what="moved up")
        # Staff can still stop the sale, and its end decides everyone who is left.
        sale_control.pause(shop.card.slug, actor="test", reason="full")
        sale_control.close(shop.card.slug, actor="test")
        wait_until(
            lambda: line.look(redis.connect(), shop.card.sku)[:2] == (0, 0), timeout_seconds=PATIENCE_SECONDS,
            what="all are decided",
        )  # fmt: skip
    assert Order.objects.filter(sale_id=shop.card.sale_id).count() == BUYERS
    assert_books_balance(shop.card)


def test_with_room_again_it_admits_again(shop: Shop) -> None:
    assert_refused(shop)
    empty(redis.connect())
    web, buyer = shop.web, shop.web.new_buyer()
    wait_until(lambda: web.ask(shop.card.slug, buyer).status == 202, what="it admits again")
    assert "detail" not in web.get("/readyz").json()


def assert_refused(shop: Shop) -> None:
    """Fail unless newcomers are sent away at the API and at the page, and staff can see why."""
    wait_until(lambda: "maxmemory" in shop.web.get("/readyz").json().get("detail", ""))
    newcomer = shop.web.new_buyer()
    for answer in (shop.web.ask(shop.card.slug, newcomer), press(shop.web, shop.card, newcomer)):
        assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (503, True), answer
    wait_until(lambda: shop.web.get("/readyz").status == 200, what="it is ready all the same")
    assert shop.web.ask(shop.card.slug, newcomer).json()["code"] == "unavailable"
    assert "redis_full" in (shop.folder / "web.log").read_text()
    with pytest.raises(MemoryFull):
        requests.ask(shop.card, buyer="newcomer", quantity=1, idempotency_key="a")
    assert "maxmemory" in control_room.summary(control_room.read_room(Sale.objects.get(pk=shop.card.sale_id), None))


def press(web: Caller, card: SaleCard, buyer: Buyer) -> Answer:
    """Press the button of the sale page."""
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": f"buyer={buyer.token}",
        "Origin": f"http://127.0.0.1:{web.port}",
    }
    body = urlencode({"quantity": "1", "idempotency_key": "first-press"})
    return web.call("POST", f"/sales/{card.slug}/", body=body, headers=headers)


@contextmanager
def without_flags(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Send every script without its first line."""
    whole = scripts.script_text
    with monkeypatch.context() as patched:
        patched.setattr(scripts, "script_text", lambda name: whole(name).removeprefix(FLAG))
        scripts.script_digest.cache_clear()
        yield
    scripts.script_digest.cache_clear()


def test_without_the_flag_nothing_drains(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same line, the same server, the scripts without their first line."""
    with without_flags(monkeypatch), pytest.raises(RedisUnavailable):
        road.settle_line(shop.card)
    # It may be refused at its first script, or at the one that tells what was decided.
    look = line.look(redis.connect(), shop.card.sku)
    assert look.waiting + look.in_flight == BUYERS


@pytest.mark.parametrize("has_flag", [True, False], ids=["as it is", "the control: without the flag"])
def test_a_queue_is_worked_to_its_end_on_a_full_server(
    has_flag: bool, valkey: OwnStore, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with override_settings(REDIS_URL=valkey.url):
        client = redis.connect()
    queue = Queue(client, new_sku())
    queue.enqueue([f"task-{number}" for number in range(BUYERS)])
    with Lock(client, queue.name, ttl_ms=road.LOCK_TTL_MS) as lock:
        client.config_set("maxmemory", "1mb")  # less than it uses
        if not has_flag:
            with without_flags(monkeypatch), pytest.raises(RedisUnavailable):
                queue.take(token=lock.token, call=1, batch=BUYERS)
            return
        handed = queue.take(token=lock.token, call=1, batch=BUYERS)
        assert queue.settle([name for name, _ in handed.tasks], token=lock.token) == BUYERS


def test_below_nine_tenths_a_server_is_not_full_and_without_a_limit_never() -> None:
    limits = [(89, 100), (90, 100), (100, 0)]
    assert [memory.Memory(used, most).nearly_full for used, most in limits] == [False, True, False]
