"""The scenario in docs/load-testing.md, word for word: its buyers come among the others and are judged like them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadtest.record.history import read_history
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import ROOT, SELLING, shop_process
from tests.support.shown_sales import seconds_to_pay_in, shown_sales

TOKEN = "audit-token-of-a-scenario"
DOCUMENT = ROOT / "docs" / "load-testing.md"
SCENARIO = re.compile(r"^```python\n(.*?class Family\(Buyer\).*?)^```", flags=re.MULTILINE | re.DOTALL)
FLOOD_SECONDS = 1500.0
UNITS, RATE, SECONDS = 20, 30, 8


@pytest.fixture(scope="module")
def environment(lasting_environment: dict[str, str]) -> dict[str, str]:
    """The environment of the shop, on the test database, and of the flood."""
    return {**lasting_environment, "FAIRDROP_AUDIT_TOKEN": TOKEN}


@pytest.fixture(scope="module")
def shop(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A shop with the processes of the demo."""
    folder = tmp_path_factory.mktemp("shop")
    with shop_process(environment, folder=folder, workers=(*SELLING, "reconciler", "notary")) as caller:
        yield caller


@pytest.fixture
def card(shop: Caller, shop_database: None, new_sku: Callable[[], str]) -> SaleCard:
    """A sale of few units with short holds."""
    make = shown_sales(shop, new_sku)
    return make(units=UNITS, hold_seconds=seconds_to_pay_in(shop, make))


def scenario() -> str:
    """Return the program of the document."""
    (text,) = SCENARIO.findall(DOCUMENT.read_text())
    return str(text)


def test_the_scenario_of_the_document_has_twenty_lines() -> None:
    assert len(scenario().splitlines()) == 20


def test_the_scenario_of_the_document_is_judged_like_the_rest(
    shop: Caller, environment: dict[str, str], tmp_path: Path, card: SaleCard
) -> None:
    own, folder = tmp_path / "family.py", tmp_path / "run"
    own.write_text(scenario())
    files = f"loadtest/locustfile.py,loadtest/shapes/smoke.py,{own}"
    words = ["-f", files, "--headless", "--users", "60", "--rate", str(RATE), "--seconds", str(SECONDS)]
    words += ["--host", f"http://127.0.0.1:{shop.port}", "--sales", card.slug, "--history", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "locust", *words], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=FLOOD_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["ok"]
    assert json.loads((folder / "run.json").read_text())["kinds"]["family"] == 10
    # Of thirty who come three are impatient and ten are families: nobody else asks for one thing by one double click.
    asks = [operation for operation in read_history(folder).operations if operation.kind == "ask"]
    clicks: dict[str, Counter[str]] = {}
    for ask in asks:
        clicks.setdefault(ask.buyer, Counter())[ask.click] += 1
    families = [buyer for buyer, seen in clicks.items() if seen["first"] == seen["double"] == 1 and not seen["again"]]
    assert len(families) == RATE * SECONDS * 10 // 30
    assert verdict["sales"][0]["asked"] == len(asks)
