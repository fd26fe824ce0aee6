"""A real Prometheus with the repository's rules looks at a small shop: while all is well every query has data and no
alert fires; each of three faults raises its own alerts. Needs the prometheus program. Grafana itself is not run.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from inventory import redis
from tests.support.crashes.worker_shop import OwnStores, freeze, own_stores, wake, worker_process
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import ROOT, running_process
from tests.support.shopkeeping import make_sale, shop_of
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database")

MISSING = "No Prometheus was found. Install it: sudo apt-get install --yes prometheus"
RULES = yaml.safe_load((ROOT / "docker" / "prometheus" / "rules.yml").read_text())
RECORDED = [rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule]
PANELS = json.loads((ROOT / "docker" / "grafana" / "fairdrop.json").read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
# The shop of a test has no TLS in front of it; the rule's own test has the figure.
WITHOUT_TLS = {"fairdrop:certificate_left_seconds:min"}
KINDS = ("settler", "expirer", "payments", "reconciler", "mailer", "notary", "sandbox")
MAX_MEMORY = 1_000_000_000


@dataclass(frozen=True)
class Watched:
    """A shop, its processes by kind, and the Prometheus that looks at it."""

    caller: Caller
    processes: dict[str, ChildProcess]
    prometheus_port: int

    def ask(self, path: str, **words: str) -> Any:
        """Return what Prometheus answers, nothing before it serves."""
        try:
            with urlopen(f"http://127.0.0.1:{self.prometheus_port}{path}?{urlencode(words)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return {}

    def values(self, query: str) -> list[float]:
        """Return the values of a query that are numbers."""
        found = [float(each["value"][1]) for each in self.ask("/api/v1/query", query=query).get("result", [])]
        return [value for value in found if value == value]

    def firing(self) -> set[str]:
        alerts = self.ask("/api/v1/alerts").get("alerts", [])
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def configuration(folder: Path, ports: list[int]) -> Path:
    """Write the repository's files for this machine: other targets, and alerts that wait less.

    They wait longer than a busy machine keeps a process from answering.
    """
    text = re.sub(r"for: \S+", "for: 15s", (ROOT / "docker" / "prometheus" / "rules.yml").read_text())
    (folder / "rules.yml").write_text(text)
    config = yaml.safe_load((ROOT / "docker" / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def prometheus(folder: Path, ports: list[int]) -> Iterator[int]:
    program, port = shutil.which("prometheus"), free_port()
    if program is None:
        pytest.fail(MISSING)
    command = [
        program, f"--config.file={configuration(folder, ports)}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("w") as log, subprocess.Popen(command, stderr=log) as running:
        try:
            yield port
        finally:
            running.terminate()


@pytest.fixture(scope="module")
def stores(lasting_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStores]:
    with own_stores(lasting_environment, folder=tmp_path_factory.mktemp("stores")) as own:
        yield own


@pytest.fixture
def watched(stores: OwnStores, tmp_path: Path) -> Iterator[Watched]:
    ports, port, processes = {kind: free_port() for kind in ("web", *KINDS)}, free_port(), dict[str, ChildProcess]()
    with shop_of(stores.environment), ExitStack() as running:
        redis.run_commands(redis.connect(), [("CONFIG", "SET", "maxmemory", MAX_MEMORY)])
        for kind, own in ports.items():
            environment = {**stores.environment, "FAIRDROP_METRICS_ADDRESS": f"127.0.0.1:{own}"}
            if kind == "web":
                command = [sys.executable, "manage.py", "run_web", "--port", str(port)]
                process = running_process("web", command, environment=environment, folder=tmp_path)
            else:
                process = worker_process(kind, environment, folder=tmp_path)
            processes[kind] = running.enter_context(process)
        yield Watched(Caller(port), processes, running.enter_context(prometheus(tmp_path, list(ports.values()))))
        wake(processes["settler"])


def sell(shop: Watched, slug: str, *, times: int) -> None:
    """Ask, and pay half of what is held."""
    for number in range(times):
        buyer = shop.caller.new_buyer()
        asked = shop.caller.ask(slug, buyer)
        assert asked.status in (202, 409)
        if asked.status == 202 and number % 2:
            address = f"/api/v1/requests/{asked.json()['request_id']}"
            wait_until(lambda at=address, who=buyer: state_of(shop, at, who.headers) == "held", what="it is held")
            shop.caller.call("POST", f"{address}/payment", body=b"{}", headers={**buyer.headers, **JSON})


JSON = {"Content-Type": "application/json"}


def state_of(shop: Watched, address: str, headers: dict[str, str]) -> str:
    return str(shop.caller.get(address, headers=headers).json()["state"])


def missing(shop: Watched) -> list[str]:
    """Return each query of the dashboard and each recorded value that has no number now."""
    return [query for query in {*QUERIES, *RECORDED} - WITHOUT_TLS if not shop.values(query)]


def test_a_green_flood_shows_everything_and_each_fault_raises_its_alerts(
    watched: Watched, new_sku: Callable[[], str]
) -> None:
    card = make_sale(new_sku(), units=1_000)
    wait_until(lambda: watched.firing() is not None and shows(watched, card.slug), what="the sale is shown")
    wait_until(lambda: len(watched.values("up == 1")) == 1 + len(KINDS), what="every process is seen")
    left = missing(watched)

    def complete() -> bool:
        sell(watched, card.slug, times=4)
        left[:] = missing(watched)
        return not left

    wait_until(complete, what=lambda: f"data for {left}")
    wait_until(lambda: not watched.firing(), what=lambda: f"no alert after the start: {watched.firing()}")
    for _ in range(10):
        sell(watched, card.slug, times=4)
        assert watched.firing() == set()

    freeze(watched.processes["settler"])
    assert watched.caller.ask(card.slug, watched.caller.new_buyer()).status == 202
    expected = {"WorkerSilent", "WorkerMissing", "ProcessUnseen", "UndecidedTooOld"}
    wait_until(lambda: expected <= watched.firing(), what=lambda: f"{expected - watched.firing()} fire")
    wake(watched.processes["settler"])
    wait_until(lambda: not watched.firing(), what=lambda: f"all are quiet again: {watched.firing()}")

    redis.run_commands(redis.connect(), [("CONFIG", "SET", "maxmemory", 1_000_000)])
    wait_until(lambda: "RedisMemory" in watched.firing(), what="a full Redis is told")
    redis.run_commands(redis.connect(), [("CONFIG", "SET", "maxmemory", MAX_MEMORY)])

    watched.processes["reconciler"].kill_group()
    wait_until(lambda: "LinesUnseen" in watched.firing(), timeout_seconds=300, what="blind alerts are told")


def shows(shop: Watched, slug: str) -> bool:
    try:
        return shop.caller.get(f"/api/v1/sales/{slug}").status == 200
    except OSError:
        return False
