"""Proves that in a whole flood nobody is told less than before, though Redis and PostgreSQL are frozen in turns.
Every process of the shop, on stores of their own; the flood's own verdict decides.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtest.record.history import UNKNOWN, now_ns, read_history
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import OwnStore, own_postgres, own_valkey
from tests.support.crashes.worker_shop import worker_process
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import ROOT, web_process
from tests.support.shopkeeping import assert_books_balance, make_sale, shop_of
from tests.support.waiting import wait_until

TOKEN = "an-audit-token-that-only-this-test-knows"
BUYERS, UNITS, HOLD_SECONDS = 200, 30, 6
FROZEN_SECONDS, AWAKE_SECONDS = 3.0, 4.0
PATIENCE_SECONDS = 150


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnStore]:
    with own_valkey(tmp_path) as store:
        yield store


@pytest.fixture
def postgres(process_environment: dict[str, str]) -> Iterator[OwnStore]:
    with own_postgres(environment=process_environment) as store:
        yield store


@pytest.fixture
def environment(process_environment: dict[str, str], valkey: OwnStore, postgres: OwnStore) -> Iterator[dict[str, str]]:
    """Let this process and what it starts work on those stores."""
    environment = {**process_environment, "REDIS_URL": valkey.url, "DATABASE_URL": postgres.url}
    environment["FAIRDROP_AUDIT_TOKEN"] = TOKEN
    environment["FAIRDROP_REDIS_TIMEOUT_SECONDS"] = "0.8"  # as in production: shorter than it is frozen
    with shop_of(environment):
        yield environment


@pytest.fixture
def card(environment: dict[str, str], new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=UNITS, hold_seconds=HOLD_SECONDS)


@pytest.fixture
def web(environment: dict[str, str], card: SaleCard, tmp_path: Path) -> Iterator[Caller]:
    """Run the whole shop, and wait until it shows the sale."""
    with ExitStack() as running:
        for worker in ("settler", "expirer", "payments", "reconciler", "sandbox", "notary"):
            running.enter_context(worker_process(worker, environment, folder=tmp_path))
        caller = running.enter_context(web_process(environment, folder=tmp_path))
        wait_until(lambda: caller.get(f"/api/v1/sales/{card.slug}").status == 200)
        yield caller


def test_nobody_is_told_less_than_before_while_a_store_is_frozen(
    environment: dict[str, str], web: Caller, valkey: OwnStore, postgres: OwnStore, card: SaleCard, tmp_path: Path
) -> None:
    thawed_ns: list[int] = []
    folder = tmp_path / "flood"
    words = ["--host", f"http://127.0.0.1:{web.port}", "--sales", card.slug, "--audit-token", TOKEN, "--users", "40"]
    words += ["--buyers", str(BUYERS), "--attempts", str(4 * BUYERS), "--history", str(folder)]
    # Nobody is sent home before the end: how long it takes is the machine's.
    words += ["--expects", "paid,cancelled,double,again,retry", "--run-time", "1200"]
    command = [sys.executable, "-m", "loadtest.run_flood", *words]
    with (tmp_path / "flood.log").open("w") as log:
        running = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            ended = Order.objects.filter(sale_id=card.sale_id, state__in=["paid", "cancelled"])
            wait_until(ended.exists, what="the first hold is paid or given back")
            while running.poll() is None:
                with postgres.frozen():
                    time.sleep(FROZEN_SECONDS)
                    thawed_ns.append(now_ns())
                # At once: what has waited for PostgreSQL is committed now, and the line cannot be told.
                with valkey.frozen():
                    time.sleep(FROZEN_SECONDS)
                time.sleep(AWAKE_SECONDS)
            running.wait(timeout=PATIENCE_SECONDS)
        finally:
            running.kill()
            running.wait(timeout=120)
    verdict = json.loads((folder / "verdict.json").read_text())
    found = {check["name"]: check["details"] for check in verdict["checks"] if check["count"]}
    assert found == {}
    acts = [each for each in read_history(folder).operations if each.kind in ("pay", "cancel")]
    assert any(act.outcome == UNKNOWN and act.status == 503 for act in acts), "no act met a frozen Redis"
    waited = [act for act in acts if any(act.began_ns < at <= act.ended_ns for at in thawed_ns)]
    assert waited, "no act met a frozen PostgreSQL"
    assert_books_balance(card)
