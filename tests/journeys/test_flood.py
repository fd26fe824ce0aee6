"""The flood on the real shop, small: its verdict is green, its exit code says so in every mode, and it can fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtest.record.history import read_history
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import ROOT, SELLING, shop_process
from tests.support.shopkeeping import assert_books_balance
from tests.support.shown_sales import seconds_to_pay_in, shown_sales
from tests.support.waiting import wait_until

TOKEN = "-audit-token-of-a-test-that-begins-with-a-hyphen"
FLOOD_SECONDS = 1500.0
UNITS = 20


@pytest.fixture(scope="module")
def environment(lasting_environment: dict[str, str]) -> dict[str, str]:
    """The environment of the shop, on the test database, and of the flood."""
    return {**lasting_environment, "FAIRDROP_AUDIT_TOKEN": TOKEN}


@pytest.fixture(scope="module")
def shop(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A shop with the processes of the demo."""
    folder = tmp_path_factory.mktemp("shop")
    workers = (*SELLING, "settler", "reconciler", "notary")
    with shop_process(environment, folder=folder, workers=workers) as caller:
        yield caller


@pytest.fixture
def open_sale(shop: Caller, shop_database: None, new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    """Return a function that makes a sale and waits until the web process knows it."""
    make = shown_sales(shop, new_sku)
    return partial(make, hold_seconds=seconds_to_pay_in(shop, make))


def address(shop: Caller) -> str:
    """Return the shop's address."""
    return f"http://127.0.0.1:{shop.port}"


def flood(environment: Mapping[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the flood command to its end."""
    # A crowd ends by itself; one on a slow machine is not sent home before.
    command = [sys.executable, "-m", "loadtest.run_flood", "--run-time", "900", "--users", "40"]
    command += ["--history", str(folder), *words]
    return subprocess.run(
        command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, timeout=FLOOD_SECONDS, check=False
    )


def checker(environment: Mapping[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Judge the record of a flood again, with the shop's books as they are now."""
    command = [sys.executable, "-m", "loadtest.checker", str(folder), *words]
    return subprocess.run(command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, check=False)


def verdict_in(folder: Path) -> dict[str, Any]:
    """Return the verdict that a flood left."""
    verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    return verdict


def assert_watched(folder: Path, sales: set[str]) -> None:
    """Fail unless the shop was looked at, each sale's figures and an audit, and it is known how the run was made."""
    looks = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert {slug for look in looks for slug in look.get("figures", {})} == sales
    assert {look["sale"] for look in looks if "audit" in look} & sales
    told = json.loads((folder / "run.json").read_text())
    assert told["shop"]["store"]["appendfsync"]
    assert TOKEN not in (folder / "run.json").read_text() + (folder / "report.html").read_text()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_flood_of_the_real_shop_ends_green(
    shop: Caller, environment: dict[str, str], tmp_path: Path, open_sale: Callable[..., SaleCard], processes: int
) -> None:
    cards = [open_sale(units=UNITS) for _ in range(2)]
    done = flood(
        environment, tmp_path, "--host", address(shop), "--sales", ",".join(card.slug for card in cards),
        "--buyers", "200", "--attempts", "1600", "--processes", str(processes), "--audit-token", TOKEN,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{2 * UNITS} of {2 * UNITS} units were sold, each once, and 0 are free" in done.stdout
    verdict = verdict_in(tmp_path)
    assert verdict["ok"]
    assert sum(sale["asked"] for sale in verdict["sales"]) == verdict["rate"]["attempts"] >= 1600
    assert sum(sale["repeated"] for sale in verdict["sales"]) >= 480
    assert [sale["results"]["paid"] for sale in verdict["sales"]] == [UNITS, UNITS]
    for sale in verdict["sales"]:
        assert min(sale["results"][end] for end in ("expired", "cancelled", "refunded", "sold_out")) > 0
        assert min(sale["moved_up"], sale["paid_late"]) > 0
    assert len(list(tmp_path.glob("history-*.jsonl"))) == processes
    logs = (tmp_path / "public_logs.txt").read_text()
    assert len(re.findall(r"[1-9][0-9,]* tickets, every rule holds", logs)) == len(cards), logs
    assert done.stdout.splitlines()[-1] == f"Report: {tmp_path / 'report.html'}"
    assert_watched(tmp_path, {card.slug for card in cards})
    for card in cards:
        assert assert_books_balance(card)["sold"] == UNITS
    again = checker(environment, tmp_path, "--host", address(shop))
    assert again.returncode == 0, again.stdout + again.stderr


def test_every_kind_of_buyer_comes_when_the_plan_says_and_is_served_rightly(
    shop: Caller, environment: dict[str, str], tmp_path: Path, open_sale: Callable[..., SaleCard]
) -> None:
    card = open_sale(units=UNITS)
    done = flood(
        environment, tmp_path, "--host", address(shop), "--sales", card.slug, "--audit-token", TOKEN,
        "--shape", "smoke", "--rate", "40", "--seconds", "8", "--processes", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = verdict_in(tmp_path)
    assert [len(verdict["load"]["processes"]), verdict["load"]["missing"]] == [2, []]
    operations = read_history(tmp_path).operations
    joined = [operation for operation in operations if operation.kind == "join"]
    assert len({operation.buyer for operation in joined} - {""}) == 320
    assert all(operation.planned_ns <= operation.began_ns for operation in joined)
    assert max(one.planned_ns for one in joined) - min(one.planned_ns for one in joined) > 7e9
    assert {"restore", "watch", "event"} <= {operation.kind for operation in operations if operation.outcome == "ok"}
    (stage,) = json.loads((tmp_path / "stages.json").read_text())
    assert 400 < stage["clicks"] <= sum(sale["asked"] for sale in verdict["sales"])


def test_a_flood_that_never_sells_out_proves_nothing(
    shop: Caller, environment: dict[str, str], tmp_path: Path, open_sale: Callable[..., SaleCard]
) -> None:
    card = open_sale(units=500)
    done = flood(
        environment, tmp_path, "--host", address(shop), "--sales", card.slug, "--buyers", "30", "--attempts", "90"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nobody was told it was sold out" in done.stdout
    assert "proves nothing: inconclusive" in done.stdout


@pytest.mark.parametrize("more", [["--attempts", "600"], ["--attempts", "500000", "--run-time", "10s"]])
def test_plain_locust_judges_too(
    shop: Caller, environment: dict[str, str], tmp_path: Path, open_sale: Callable[..., SaleCard], more: list[str]
) -> None:
    """Also when its time is up before everybody has been there: then Locust's clock and the flood both end the run."""
    card = open_sale(units=UNITS)
    words = ["--headless", "--users", "20", "--host", address(shop), "--sales", card.slug, "--history", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "locust", *words, "--buyers", "60", *more],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=FLOOD_SECONDS, check=False,
    )  # fmt: skip
    assert "✓ oversold" in done.stdout, done.stdout + done.stderr
    assert done.returncode == (0 if verdict_in(tmp_path)["ok"] else 1)
    assert "--run-time" in more or done.returncode == 0
    assert f"Report: {tmp_path / 'report.html'}" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sales", "no-such-sale"], "is that the slug of a sale of this shop?"),
        (["--audit-token", "wrong"], "is the audit token right?"),
        (["--buyers", "10", "--attempts", "5"], "at least one attempt for each"),
        (["--expects", "sold_out,rain"], "rain: a run can be expected to show sold_out"),
        (["--host", "http://192.0.2.1:8000"], "192.0.2.1 is not this machine"),
        (["--host", "http://127.0.0.1:1"], "No shop answers at http://127.0.0.1:1"),
    ],
)
def test_a_flood_that_cannot_begin_says_why_in_one_sentence(
    shop: Caller,
    environment: dict[str, str],
    tmp_path: Path,
    open_sale: Callable[..., SaleCard],
    words: list[str],
    sentence: str,
) -> None:
    card = open_sale(units=1)
    done = flood(environment, tmp_path, "--host", address(shop), "--sales", card.slug, *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_sale_that_is_not_open_is_not_flooded(
    shop: Caller, environment: dict[str, str], tmp_path: Path, open_sale: Callable[..., SaleCard]
) -> None:
    card = open_sale(units=1, opens_in_seconds=600)
    done = flood(environment, tmp_path, "--host", address(shop), "--sales", card.slug)
    assert done.returncode == 2
    assert "not open: there is nothing to flood" in done.stderr


@pytest.mark.parametrize("ending", ["terminate", "kill"])
def test_an_ended_flood_takes_its_crowd_along(
    shop: Caller, environment: dict[str, str], tmp_path: Path, open_sale: Callable[..., SaleCard], ending: str
) -> None:
    card = open_sale(units=UNITS)
    command = [sys.executable, "-m", "loadtest.run_flood", "--host", address(shop), "--sales", card.slug]
    command += ["--history", str(tmp_path), "--attempts", "500000", "--processes", "2"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            leader = psutil.Process(process.pid)
            wait_until(lambda: len(leader.children(recursive=True)) >= 3, timeout_seconds=600, what="a crowd is there")
            crowd = leader.children(recursive=True)
            getattr(process, ending)()
            process.wait(timeout=120)
        finally:
            process.kill()  # a flood whose crowd did not come would go on, and the block wait for its end
    wait_until(lambda: not any(_lives(one) for one in crowd), what="the crowd is gone")


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
