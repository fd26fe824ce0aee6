"""Writes database.sql, redis.jsonl and people.jsonl: what a running shop of revision c612c29 leaves behind.

Run once, by hand: `git worktree add DIR c612c29`, then `python -m tests.crashes.old_shop.make DIR`. All of it is made
by the real processes of that revision, over HTTP and by manage.py; only one damaged record is written by this script.
Never run by a test: what it wrote is in the repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from inventory import redis
from loadtest.record.files import own_mark
from tests.crashes.old_shop import FOLDER, KEYS
from tests.support.http_calls import JSON, Buyer, Caller
from tests.support.servers.stores import PREFIX
from tests.support.waiting import wait_until
from workers.embedded.binaries import postgres_folder
from workers.embedded.child_process import ChildProcess
from workers.embedded.postgres import start_postgres
from workers.embedded.server import free_port
from workers.embedded.valkey import start_valkey

HEADER = """\
A running shop of revision c612c29, made by its real processes: see make.py in this folder.
Moments are as they were then: sales are open until 2099, long holds end after 2030, the others are over."""
MAKE_SALE = """
from datetime import UTC, datetime, timedelta
from django.db import connection, transaction
from inventory.ledger import load_stock
from shop import catalogue
from shop.models import Product, Sale
with transaction.atomic():
    with connection.cursor() as cursor:
        stock_id = load_stock(cursor, sku={sku!r}, units={units}, actor="anna", reason="first delivery")
    product = Product.objects.create(slug={sku!r}, title={sku!r}, list_price="20.00", stock_id=stock_id)
    opens_at = datetime.now(UTC) - timedelta(seconds=5)
    Sale.objects.create(slug={sku!r}, product=product, stock_id=stock_id, title={sku!r}, price="15.00",
                        opens_at=opens_at, closes_at=datetime(2099, 1, 1, tzinfo=UTC), hold_seconds={hold_seconds})
catalogue.prime_sale({sku!r})
"""
LONG_HOLD = 10 * 365 * 86_400  # those of the files end in November 2036: make them again before
SHORT_HOLD = 20
LOCK_TTL_MS = 500


@dataclass
class OldShop:
    """The old web process, its stores, and who asked for what."""

    checkout: Path
    environment: dict[str, str]
    web: Caller
    client: Any
    people: list[dict[str, Any]] = field(default_factory=list)

    def make_sale(self, sku: str, *, units: int, hold_seconds: int = LONG_HOLD) -> None:
        """Make a sale whose slug is its SKU, and wait until the web process has it."""
        self.manage("shell", "-c", MAKE_SALE.format(sku=sku, units=units, hold_seconds=hold_seconds))
        wait_until(lambda: self.web.get(f"/api/v1/sales/{sku}").status == 200)

    def manage(self, *words: str) -> None:
        """Run a command of the old manage.py."""
        command = [sys.executable, "manage.py", *words]
        subprocess.run(command, cwd=self.checkout, env=self.environment, check=True, timeout=120)

    def ask(self, sku: str, *names: str) -> None:
        """Let buyers ask for a unit each, one after the other."""
        for name in names:
            buyer = self.web.new_buyer()
            told = self.web.ask(sku, buyer, key=f"key-{name}")
            assert told.status == 202, told.body
            kept = {key: told.json()[key] for key in ("request_id", "seq", "ticket")}
            self.people.append({"name": name, "sale": sku, "buyer": buyer.name, "token": buyer.token, **kept})

    def call(self, name: str, what: str, body: dict[str, Any]) -> Any:
        """POST an act on the request of `name`; return the answer."""
        person = next(each for each in self.people if each["name"] == name)
        headers = {**JSON, **Buyer(person["buyer"], person["token"]).headers}
        path = f"/api/v1/requests/{person['request_id']}/{what}"
        answer = self.web.call("POST", path, body=json.dumps(body), headers=headers)
        assert answer.status == 200, answer.body
        return answer.json()

    def work(self, *skus: str, fault: str = "", until_waiting: int = 0) -> None:
        """Let a settler work on these SKUs only, until a fault kills it or so many are left in the first one's line."""
        every = self.client.smembers("fd:skus")
        self.client.delete("fd:skus")
        self.client.sadd("fd:skus", *skus)
        with self.process("run_worker", "settler", fault=fault) as settler:
            if fault:
                wait_until(lambda: not settler.running, what="the fault kills the settler")
            else:
                wait_until(lambda: self.left(skus[0]) == until_waiting, what="the settler has decided")
                time.sleep(3)  # so that what it finds to do after that is done as well
        self.client.sadd("fd:skus", *every)
        wait_until(lambda: not any(self.client.exists(f"fd:{{{sku}}}:lock") for sku in skus))

    def left(self, sku: str) -> int:
        """Return how many are in line and in flight."""
        return int(self.client.zcard(f"fd:{{{sku}}}:line") + self.client.zcard(f"fd:{{{sku}}}:flight"))

    @contextmanager
    def process(self, *words: str, fault: str = "") -> Iterator[ChildProcess]:
        """Run manage.py as a process of its own."""
        child = ChildProcess(
            name=words[-1],
            arguments=[sys.executable, "manage.py", *words],
            environment={**self.environment, "FAIRDROP_FAULT": fault},
            folder=self.checkout,
            stop_timeout_seconds=20,
        )
        try:
            yield child.start()
        finally:
            child.stop()


@contextmanager
def old_shop(checkout: Path) -> Iterator[OldShop]:
    """Run both stores and the web process of `checkout`."""
    with TemporaryDirectory(prefix=PREFIX + own_mark()) as name, ExitStack() as running:
        folder = Path(name)
        postgres = running.enter_context(start_postgres(folder))
        valkey = running.enter_context(start_valkey(folder))
        environment = {
            **os.environ,
            **KEYS,
            "FAIRDROP_ENV": "development",
            "FAIRDROP_STATE_DIR": name,
            "FAIRDROP_LOCK_TTL_MS": str(LOCK_TTL_MS),
            "FAIRDROP_SETTLE_BATCH": "3",
            "DATABASE_URL": postgres.url,
            "REDIS_URL": valkey.url,
            "CACHE_URL": valkey.url,
        }
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=checkout, env=environment, check=True)
        port = free_port()
        options = ["--interface", "asgi", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--no-ws"]
        command = [sys.executable, "-m", "granian", *options, "--loop", "uvloop", "shop.asgi:application"]
        web = ChildProcess(name="web", arguments=command, environment=environment, folder=checkout).start()
        running.callback(web.stop)
        os.environ.update(environment, DJANGO_SETTINGS_MODULE="shop.settings")  # for connect
        shop = OldShop(checkout, environment, Caller(port), redis.connect())
        wait_until(lambda: _serves(shop.web), what="the old web process serves")
        yield shop


def _serves(web: Caller) -> bool:
    try:
        return web.get("/healthz", timeout_seconds=1).status == 200
    except OSError:
        return False


def live_through(shop: OldShop) -> None:
    """Let the shop live: each sale is one state in which an upgrade may find it."""
    # Dead letters: one refused, one that could not even be refused, one whose record was damaged by hand.
    shop.make_sale("drum", units=5)
    shop.ask("drum", "refused")
    for _ in range(5):
        shop.work("drum", fault="after_take:kill")
    shop.work("drum")
    shop.ask("drum", "set-aside")
    for _ in range(8):
        shop.work("drum", fault="after_take:kill")
    shop.work("drum")
    shop.ask("drum", "damaged", "after-them")
    shop.client.hset("fd:{drum}:records", shop.people[-2]["request_id"], "nonsense")
    shop.work("drum")
    assert shop.call("after-them", "cancel", {})["state"] == "cancelled"
    # Every unit held; three wait for one that comes back. One has paid, one has begun to.
    shop.make_sale("lamp", units=4)
    shop.ask("lamp", "paid", "paying", "holding", "cancelling", "waits-1", "waits-2", "waits-3")
    # Holds whose time is over by the time of the upgrade, and two who wait for them.
    shop.make_sale("clock", units=2, hold_seconds=SHORT_HOLD)
    shop.ask("clock", "lapsed-1", "lapsed-2", "heir-1", "heir-2")
    # Over and settled.
    shop.make_sale("print", units=1)
    shop.ask("print", "bought", "too-late")
    shop.work("lamp", "clock", "print", until_waiting=3)
    assert [shop.left(sku) for sku in ("lamp", "clock", "print")] == [3, 2, 1]
    for name in ("paid", "bought"):
        assert shop.call(name, "payment", {})["state"] == "paid"
    shop.call("paying", "payment", {"page": True})
    shop.manage("sale", "close", "print", "--actor", "anna")
    shop.work("print")
    leave_work_behind(shop)


def leave_work_behind(shop: OldShop) -> None:
    """Leave what nobody has decided, and what settlers had in hand when they died."""
    # A batch in flight whose settler died before its transaction; more wait than there are units.
    shop.make_sale("vase", units=5)
    shop.ask("vase", *(f"vase-{number}" for number in range(1, 8)))
    shop.work("vase", fault="after_take:kill")
    # A batch that is committed, and of which Redis was never told.
    shop.make_sale("kite", units=10)
    shop.ask("kite", *(f"kite-{number}" for number in range(1, 6)))
    shop.work("kite", fault="after_commit:kill")
    # The price rises while people wait.
    shop.make_sale("globe", units=10)
    shop.ask("globe", "at-15-1", "at-15-2")
    shop.manage("sale", "terms", "globe", "--price", "20.00", "--actor", "anna")
    wait_until(lambda: shop.web.get("/api/v1/sales/globe").json()["price"] == "20.00")
    shop.ask("globe", "at-20-1", "at-20-2")
    # A sale that is paused with people in line.
    shop.make_sale("chess", units=2)
    shop.ask("chess", "chess-1", "chess-2", "chess-3")
    shop.manage("sale", "pause", "chess", "--reason", "stocktaking", "--actor", "anna")


def write_down(shop: OldShop) -> None:
    """Write the three files."""
    program = [str(postgres_folder() / "pg_dump"), "--data-only", "--column-inserts", "--rows-per-insert=100"]
    tables = ["--table=shop_*", "--table=inventory_*", "--table=sandbox_*"]
    dump = [*program, *tables, shop.environment["DATABASE_URL"]]
    text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    kept = [
        line for line in text.splitlines() if line and not re.match(r"--|SET |\\|SELECT pg_catalog\.set_config", line)
    ]
    heading = "".join(f"-- {line}\n" for line in HEADER.splitlines())
    (FOLDER / "database.sql").write_text(heading + "\n".join(kept) + "\n")
    # Not the workers' signs of life: they say nothing of a request, and go by themselves.
    commands = [command_for(shop.client, key) for key in sorted(shop.client.scan_iter()) if key != "fd:workers"]
    _write_lines("redis.jsonl", commands)
    _write_lines("people.jsonl", shop.people)


def _write_lines(name: str, rows: list[Any]) -> None:
    lines = [json.dumps(row) for row in (HEADER, *rows)]
    (FOLDER / name).write_text("\n".join(lines) + "\n")


def command_for(client: Any, key: str) -> list[str]:
    """Return the command that writes `key` as it is."""
    kind = client.type(key)
    if kind == "hash":
        return ["HSET", key, *(part for pair in sorted(client.hgetall(key).items()) for part in pair)]
    if kind == "zset":
        found = client.zrange(key, 0, -1, withscores=True)
        return ["ZADD", key, *(part for name, score in found for part in (f"{score:.0f}", name))]
    if kind == "set":
        return ["SADD", key, *sorted(client.smembers(key))]
    assert kind == "string", f"{key} is a {kind}"
    return ["SET", key, client.get(key)]


if __name__ == "__main__":
    with old_shop(Path(sys.argv[1]).resolve()) as made:
        live_through(made)
        write_down(made)
