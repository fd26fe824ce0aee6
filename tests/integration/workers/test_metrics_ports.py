"""Every process of the shop shows what it counted on a port of its own, and what several show adds up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.crashes.worker_shop import worker_process
from tests.support.http_calls import Caller
from tests.support.metrics import samples_of
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, running_process
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database")

BUYERS = 30


def samples(port: int) -> dict[str, float]:
    """Return every sample of a page as `name{labels}`; nothing while the port is shut."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return samples_of(answer.read().decode())
    except OSError:
        return {}


def two_ports_in_a_row() -> int:
    """Return a free port after which another one is free."""
    return wait_until(lambda: next((port for port in [free_port()] if not samples(port + 1)), None), what="two ports")


def is_shown(caller: Caller, slug: str) -> bool:
    """Say whether the sale is shown; the metrics are there before anybody listens at the shop's own port."""
    try:
        return caller.get(f"/api/v1/sales/{slug}").status == 200
    except OSError:
        return False


def test_two_web_processes_of_one_port_are_counted_one_by_one(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    card, port, first = make_sale(new_sku(), units=BUYERS), free_port(), two_ports_in_a_row()
    own = {"FAIRDROP_METRICS_ADDRESS": f"127.0.0.1:{first}", "FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}
    command = [sys.executable, *program_with(PATIENT_WEB), "run_web", "--port", str(port), "--workers", "2"]
    with running_process("webs", command, environment={**process_environment, **own}, folder=tmp_path):
        ports = (first, first + 1)
        wait_until(lambda: all(map(samples, ports)), what="both show something")
        caller = Caller(port)
        wait_until(partial(is_shown, caller, card.slug), what="the sale is shown")
        answers = [caller.ask(card.slug, caller.new_buyer()).status for _ in range(BUYERS)]
        assert answers == [202] * BUYERS

        def counted() -> list[dict[str, float]]:
            found = [samples(each) for each in ports]
            counts = ("fairdrop_asks_total{admitted}", "fairdrop_ask_seconds_count{}")
            sums = [sum(each.get(name, 0) for each in found) for name in counts]
            return found if sums == [BUYERS, BUYERS] else []

        both = wait_until(counted, what="each ask is counted once")
        assert all(
            each["fairdrop_script_seconds_count{admit}"] > 0 for each in both if each["fairdrop_ask_seconds_count{}"]
        )


def test_a_settler_counts_its_decisions_and_the_reconciler_shows_the_shop(
    process_environment: dict[str, str], tmp_path: Path, web: Caller, new_sku: Callable[[], str]
) -> None:
    card = make_sale(new_sku(), units=2)
    ports = {"settler": free_port(), "reconciler": free_port()}
    wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200, what="the sale is shown")
    assert [web.ask(card.slug, web.new_buyer()).status for _ in range(2)] == [202, 202]
    with ExitStack() as running:
        for kind, port in ports.items():
            environment = {**process_environment, "FAIRDROP_METRICS_ADDRESS": f"127.0.0.1:{port}"}
            running.enter_context(worker_process(kind, environment, folder=tmp_path))

        def decided() -> bool:
            return samples(ports["settler"]).get("fairdrop_decisions_total{held}", 0) >= 2

        wait_until(decided, what="two are held")

        def measured() -> bool:
            settler = samples(ports["settler"])
            return (
                settler.get("fairdrop_decision_seconds_count{}", 0) >= 2
                and settler.get("fairdrop_transaction_seconds_count{}", 0) >= 1
            )

        wait_until(measured, what="decisions and transactions are measured")

        def shown() -> bool:
            found = samples(ports["reconciler"])
            held = found.get(f"fairdrop_units{{{card.sku},held}}")
            return held == 2 and found.get("fairdrop_workers_alive{settler}", 0) >= 1

        wait_until(shown, what="the reconciler shows units and workers")
        wait_until(lambda: samples(ports["reconciler"]).get("fairdrop_look_age_seconds{}", 60) < 60, what="it looks")
