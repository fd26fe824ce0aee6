"""Follows one press from the answer at the door to the lines of the settler, the expirer and the payments worker, by
one id: real processes, each of which is given something to complain about.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

from inventory import postgres
from shop.models import Order, Payment
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import JSON, Caller
from tests.support.paying import begin
from tests.support.servers.shop_processes import running_process, web_process
from tests.support.shopkeeping import let_holds_end
from tests.support.shown_sales import shown_sales
from tests.support.waiting import wait_until


@contextmanager
def worker(name: str, environment: Mapping[str, str], folder: Path) -> Iterator[Callable[[str, str], str]]:
    """Run a worker; give what waits until its log has a line of an action with a word in it, and returns that."""
    command = [sys.executable, "manage.py", "run_worker", name]
    with running_process(name, command, environment=environment, folder=folder):

        def line_of(action: str, word: str) -> str:
            def found() -> str:
                lines = (folder / f"{name}.log").read_text().splitlines()
                return next((line for line in lines if f"action='{action}'" in line and word in line), "")

            return wait_until(found, what=f"{name} says {action} of {word}")

        yield line_of


@contextmanager
def stock_in_use(card: SaleCard) -> Iterator[None]:
    """Hold the stock's row, as somebody does whose transaction hangs: nobody decides or ends anything meanwhile."""
    with closing(postgres.connect()) as own, own.transaction():
        own.execute("SELECT 1 FROM inventory_stock WHERE sku = %s FOR UPDATE", [card.sku])
        yield


@pytest.fixture
def shop(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> Iterator[tuple[Caller, SaleCard]]:
    """Run a web process that says what it is asked; give its caller, and a sale that it shows."""
    # A busy machine may keep Redis from answering.
    own = {"LOG_LEVEL": "INFO", "FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}
    with web_process({**process_environment, **own}, folder=tmp_path) as web:
        yield web, shown_sales(web, new_sku)(units=5)


def test_one_id_leads_from_the_answer_to_the_lines_of_every_worker(
    shop: tuple[Caller, SaleCard], process_environment: dict[str, str], tmp_path: Path
) -> None:
    web, card = shop
    name = web.ask(card.slug, web.new_buyer()).headers["x-request-id"]
    # The stock is in use before the settler is there, and no longer as soon as the settler has said so.
    with ExitStack() as in_use:
        in_use.enter_context(stock_in_use(card))
        with worker("settler", process_environment, tmp_path) as line_of:
            line_of("settle_retry", name)
            in_use.close()
            is_held = Order.objects.filter(request_id=name, state="held")
            wait_until(is_held.exists, what="it is held")
    # A provider that only this payment has, and that does not answer: no other one is asked first.
    payment, old = begin(name), Now() - timedelta(minutes=10)
    Payment.objects.filter(pk=payment.pk).update(provider="away", created_at=old, changed_at=old)
    with stock_in_use(card), worker("expirer", process_environment, tmp_path) as line_of:
        let_holds_end(name)
        line_of("expire_retry", name)
    away = {"FAIRDROP_PAYMENT_PROVIDERS": "away=shop.sandbox.provider.Sandbox", "FAIRDROP_SANDBOX_MISCHIEF": "away"}
    with worker("payments", {**process_environment, **away}, tmp_path) as line_of:
        assert f"payment='{payment.reference}'" in line_of("look_up_retry", f"request='{name}'")


def test_an_id_that_a_proxy_gave_leads_to_the_request_on_both_roads(
    shop: tuple[Caller, SaleCard], tmp_path: Path
) -> None:
    """The control is an ask without an id: it needs no line, because its answer has the id of its request."""
    web, card = shop
    log, buyer, path = tmp_path / "web.log", web.new_buyer(), f"/sales/{card.slug}/"
    asked = web.call(
        "POST", f"/api/v1{path}requests", body='{"quantity":1}',
        headers={**JSON, **buyer.headers, "X-Request-ID": "of-the-api"},
    )  # fmt: skip
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    person = {"Cookie": f"buyer={web.new_buyer().token}", "X-Request-ID": "of-the-page"}
    pressed = web.call("POST", path, body="quantity=1&idempotency_key=first-key", headers={**form, **person})
    unnamed = web.ask(card.slug, web.new_buyer()).json()["request_id"]
    names = {"of-the-api": asked.json()["request_id"], "of-the-page": pressed.headers["location"].split("/")[2]}
    assert {asked.headers["x-request-id"], pressed.headers["x-request-id"]} == names.keys()
    for given, name in names.items():
        wait_until(lambda name=name: f"requests=['{name}']" in log.read_text(), what=f"the line of {given}")
        lines = [line for line in log.read_text().splitlines() if f"request_id='{given}'" in line]
        assert len([line for line in lines if f"requests=['{name}']" in line]) == 1, lines
    assert unnamed not in log.read_text()
