"""A real Prometheus with the repository's rules looks at a small shop: while all is well every query has data and no
alert is even near; then every alert fires for a fault of its own. Needs the prometheus program, and libfaketime.
Grafana itself is not run.
"""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from django.utils import timezone

from inventory import redis
from inventory.line.writing import MAX_HAND_OUTS
from inventory.redis import memory_of
from shop.models import Order, Payment
from shop.payments import notices
from shop.sales.catalogue import SaleCard
from tests.crashes.test_clock_jump import libfaketime
from tests.integration.shop.gate.test_tls_proxy import write_certificate
from tests.support.crashes.worker_shop import OwnStores, freeze_at_rest, own_stores, wake, worker_process
from tests.support.http_calls import Buyer, Caller, answer_to
from tests.support.road import held_lock, take
from tests.support.servers.shop_processes import ROOT, running_process
from tests.support.shopkeeping import fill_line, let_holds_end, make_sale, rewrite, shop_of
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database")

MISSING = "No Prometheus was found. Install it: sudo apt-get install --yes prometheus"
RULES = yaml.safe_load((ROOT / "docker" / "prometheus" / "rules.yml").read_text())
ALERTS = {rule["alert"] for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}
RECORDED = [rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule]
PANELS = json.loads((ROOT / "docker" / "grafana" / "fairdrop.json").read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
# The shop of a test has no TLS in front of it until that is one of the faults.
WITHOUT_TLS = {"fairdrop:certificate_left_seconds:min"}
KINDS = ("settler", "expirer", "payments", "reconciler", "mailer", "notary", "sandbox")
MAX_MEMORY = 1_000_000_000
# Above the bound of the alert, and below that of admission.
USED_SHARE = 0.82
# More than one in a hundred of those who were decided in the minute before.
SLOW_ASKS = 30
# For what must last a while, and be looked at, on a machine that is busy.
FAULT_SECONDS = 300.0
# One slow ask among the few of a minute is near an alert; so long a calm minute and a quarter is waited for.
CALM_SECONDS = 1500.0
# Somebody has bought all the time, and no alert has fired or been about to.
GREEN = "count_over_time(fairdrop:asks:rate1m[15s]) >= 10 unless on() count_over_time(ALERTS[15s])"


@dataclass(frozen=True)
class Watched:
    """A shop, its processes by kind, and the Prometheus that looks at it. due: alerts whose faults are there."""

    caller: Caller
    environment: Mapping[str, str]
    folder: Path
    running: ExitStack
    processes: dict[str, ChildProcess]
    prometheus_port: int
    due: set[str] = field(default_factory=set)
    fired: set[str] = field(default_factory=set)

    def ask(self, path: str, **words: str) -> Any:
        """Return what Prometheus answers, nothing before it serves."""
        try:
            with urlopen(f"http://127.0.0.1:{self.prometheus_port}{path}?{urlencode(words)}", timeout=60) as answer:
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

    def wait_until_quiet(self, *names: str) -> None:
        """Return when none of these alerts fires."""
        what = f"{', '.join(names)} are quiet"
        wait_until(lambda: not {*names} & self.firing(), timeout_seconds=FAULT_SECONDS, what=what)

    def inject(self, fault: Callable[[], object], *names: str) -> None:
        """Do what these alerts are for; before it none of them fires."""
        assert set(names) <= ALERTS - self.fired - self.due
        self.wait_until_quiet(*names)
        fault()
        self.due.update(names)

    def wait_until_fired(self, *, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Return when each alert that is due has fired, though some of them are quiet again by then."""

        def all_fired() -> bool:
            meanwhile()
            self.fired.update(self.due & self.firing())
            return self.due <= self.fired

        wait_until(all_fired, timeout_seconds=FAULT_SECONDS, what=lambda: f"{self.due - self.fired} fire")

    def start_worker(self, kind: str, *, name: str = "", **environment: str) -> None:
        """Start a worker, with something changed, and let Prometheus look at it once it answers."""
        port, name = free_port(), name or kind
        address = {"FAIRDROP_METRICS_ADDRESS": f"127.0.0.1:{port}"}
        process = worker_process(kind, {**self.environment, **address, **environment}, folder=self.folder, name=name)
        self.processes[name] = self.running.enter_context(process)
        wait_until(partial(answers, port), what=f"{name} shows its metrics")
        look_at(self.folder, [port], name=name)


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60):
            return True
    except OSError:
        return False


def look_at(folder: Path, ports: Sequence[int], *, name: str) -> None:
    """Let Prometheus look at these ports too, as soon as the file is there, which is whole from its first moment."""
    (folder / "targets.new").write_text(json.dumps([{"targets": [f"127.0.0.1:{port}" for port in ports]}]))
    (folder / "targets.new").rename(folder / f"targets-{name}.json")


def configuration(folder: Path) -> Path:
    """Write the repository's files for this machine: other targets, and alerts that all wait for the same time.

    They wait longer than a busy machine keeps a process from answering; with their own time they are in rules_test.yml.
    """
    text = re.sub(r"for: \S+", "for: 15s", (ROOT / "docker" / "prometheus" / "rules.yml").read_text())
    (folder / "rules.yml").write_text(text)
    config = yaml.safe_load((ROOT / "docker" / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    del job["dns_sd_configs"]
    job["file_sd_configs"] = [{"files": ["targets-*.json"], "refresh_interval": "2s"}]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def prometheus(folder: Path) -> Iterator[int]:
    program, port = shutil.which("prometheus"), free_port()
    if program is None:
        pytest.fail(MISSING)
    command = [
        program, f"--config.file={configuration(folder)}", f"--storage.tsdb.path={folder / 'data'}",
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
    look_at(tmp_path, list(ports.values()), name="all")
    with shop_of(stores.environment), ExitStack() as running:
        limit_memory(MAX_MEMORY)
        for kind, own in ports.items():
            environment = {**stores.environment, "FAIRDROP_METRICS_ADDRESS": f"127.0.0.1:{own}"}
            if kind == "web":
                command = [sys.executable, "manage.py", "run_web", "--port", str(port)]
                process = running_process("web", command, environment=environment, folder=tmp_path)
            else:
                process = worker_process(kind, environment, folder=tmp_path)
            processes[kind] = running.enter_context(process)
        looking = running.enter_context(prometheus(tmp_path))
        yield Watched(Caller(port), stores.environment, tmp_path, running, processes, looking)
        wake(processes["settler"])


def limit_memory(size_bytes: int) -> None:
    redis.run_commands(redis.connect(), [("CONFIG", "SET", "maxmemory", size_bytes)])


def sell(shop: Watched, slug: str, *, times: int) -> None:
    """Ask, and pay half of what is held."""
    for number in range(times):
        buyer = shop.caller.new_buyer()
        asked = answer_to(partial(shop.caller.ask, slug, buyer))
        assert asked.status in (200, 202, 409)
        if asked.status != 409 and number % 2:
            address = f"/api/v1/requests/{asked.json()['request_id']}"
            wait_until(lambda at=address, who=buyer: state_of(shop, at, who.headers) == "held", what="it is held")
            shop.caller.call("POST", f"{address}/payment", body=b"{}", headers={**buyer.headers, **JSON})


JSON = {"Content-Type": "application/json"}


def state_of(shop: Watched, address: str, headers: dict[str, str]) -> str:
    return str(shop.caller.get(address, headers=headers).json().get("state"))


def missing(shop: Watched) -> list[str]:
    """Return each query of the dashboard and each recorded value that has no number now."""
    return [query for query in {*QUERIES, *RECORDED} - WITHOUT_TLS if not shop.values(query)]


@pytest.mark.timeout(3600)
def test_a_green_flood_shows_everything_and_each_alert_fires_for_its_fault(
    watched: Watched, stores: OwnStores, new_sku: Callable[[], str]
) -> None:
    card = make_sale(new_sku(), units=100_000)
    # The one unit of the first is held for as long as the flood and the calm take.
    scarce, deadly = make_sale(new_sku(), units=1, hold_seconds=7200), make_sale(new_sku(), units=1)
    for each in (card, scarce):
        wait_until(partial(shows, watched, each.slug), timeout_seconds=FAULT_SECONDS, what="the sale is shown")
    wait_until(lambda: len(watched.values("up == 1")) == 1 + len(KINDS), timeout_seconds=FAULT_SECONDS, what="all seen")
    left = missing(watched)

    def complete() -> bool:
        sell(watched, card.slug, times=4)
        left[:] = missing(watched)
        return not left

    wait_until(complete, timeout_seconds=FAULT_SECONDS, what=lambda: f"data for {left}")
    returning, _ = (ask_and_wait(watched, scarce, until=state) for state in ("held", "waitlisted"))

    def green() -> bool:
        sell(watched, card.slug, times=4)
        return bool(watched.values(GREEN))

    wait_until(green, timeout_seconds=CALM_SECONDS, what=lambda: f"no alert near: {watched.ask('/api/v1/alerts')}")
    unpaid, unbooked = (ask_and_wait(watched, card) for _ in range(2))
    watched.inject(partial(leave_open, unpaid), "PaymentsLeftOpen")
    watched.inject(partial(rewrite, unbooked, state="expired"), "BooksDisagree")
    watched.inject(partial(end_certificate, watched), "CertificateEnds")
    watched.inject(partial(move_clock, watched), "ClocksDiffer")
    stopped = ("WorkerSilent", "WorkerMissing", "ProcessUnseen", "UndecidedTooOld", "ReturnedUnitIdle")
    watched.inject(partial(stop_settling, watched, card, scarce=scarce, deadly=deadly, returning=returning), *stopped)
    watched.inject(use_memory, "RedisMemory")
    watched.wait_until_fired()

    limit_memory(MAX_MEMORY)
    watched.inject(partial(wake, watched.processes["settler"]), "DecisionsSlow", "DeadLetters")
    watched.wait_until_fired()
    watched.wait_until_quiet(*stopped, "RedisMemory")
    watched.inject(partial(kill_reconcilers, watched), "LinesUnseen")
    watched.wait_until_fired()
    buyer = watched.caller.new_buyer()
    watched.inject(stores.valkey.kill, "AsksBroken", "FiguresStale", "StoreErrors")
    watched.wait_until_fired(meanwhile=lambda: watched.caller.ask(card.slug, buyer))
    watched.inject(watched.processes["web"].kill_group, "WebMissing")
    watched.wait_until_fired()
    assert watched.fired == ALERTS


def shows(shop: Watched, slug: str) -> bool:
    try:
        return shop.caller.get(f"/api/v1/sales/{slug}").status == 200
    except OSError:
        return False


def ask(shop: Watched, card: SaleCard, buyer: Buyer) -> str:
    """Ask for a unit; return the request."""
    asked = answer_to(partial(shop.caller.ask, card.slug, buyer))
    assert asked.status in (200, 202)
    return str(asked.json()["request_id"])


def ask_and_wait(shop: Watched, card: SaleCard, *, until: str = "held") -> str:
    """Let a new buyer ask for a unit; return the request once it is in that state."""
    buyer = shop.caller.new_buyer()
    name = ask(shop, card, buyer)
    wait_until(lambda: state_of(shop, f"/api/v1/requests/{name}", buyer.headers) == until, what=until)
    return name


def leave_open(request: str) -> None:
    """Make a payment of six days ago to a provider that is not there any more; a payments worker that starts looks."""
    payment = notices.begin(Order.objects.get(request_id=request), provider_name="sandbox")
    begun = timezone.now() - timedelta(days=6)
    Payment.objects.filter(pk=payment.pk).update(provider="gone", created_at=begun, changed_at=begun)


def end_certificate(shop: Watched) -> None:
    """Let one more reconciler look at a shop by TLS whose certificate is good for one more day."""
    write_certificate(shop.folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shop.folder / "fullchain.pem", shop.folder / "privkey.pem")
    server = shop.running.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    shop.running.callback(server.shutdown)
    address, certificate = f"https://127.0.0.1:{server.server_address[1]}", str(shop.folder / "fullchain.pem")
    shop.start_worker("reconciler", name="looking", FAIRDROP_PUBLIC_URL=address, SSL_CERT_FILE=certificate)


def move_clock(shop: Watched) -> None:
    """Start one more payments worker, on a machine whose clock is an hour ahead."""
    clock = {"FAKETIME": "+3600s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    shop.start_worker("payments", name="ahead", LD_PRELOAD=str(libfaketime()), **clock)


def stop_settling(shop: Watched, card: SaleCard, *, scarce: SaleCard, deadly: SaleCard, returning: str) -> None:
    """Freeze the settler before those who ask, a unit that comes back, and a request that ended five of its kind."""
    freeze_at_rest(shop.processes["settler"], scarce.sku, deadly.sku)
    for _ in range(SLOW_ASKS):
        ask(shop, card, shop.caller.new_buyer())
    let_holds_end(returning)
    fill_line(deadly, buyers=1)
    for _ in range(MAX_HAND_OUTS):
        lock = held_lock(deadly.sku)
        take(lock, batch=1)
        lock.release()


def use_memory() -> None:
    """Leave Redis little room above what it uses now."""
    ((used_bytes, _),) = memory_of(redis.connect()).values()
    limit_memory(int(used_bytes / USED_SHARE))


def kill_reconcilers(shop: Watched) -> None:
    for name in ("reconciler", "looking"):
        shop.processes[name].kill_group()
