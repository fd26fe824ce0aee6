"""Every way to sell behind one interface: how it is put on sale, started, asked, and counted afterwards.
Never measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from inventory import heartbeats
from inventory.redis import connect, keys, run_commands
from loadtest.bench.compare.report import OUR_TITLE, OURS
from loadtest.bench.harness.fixtures import Fixture, decided_between, faults_of, make_fixture
from loadtest.bench.harness.machine import one_row
from loadtest.bench.harness.servers import GATE, Workspace, status_of, wait_until_ready
from loadtest.bench.load.loop import HOST
from loadtest.rivals.models import RivalOrder
from loadtest.rivals.rival import Rival
from loadtest.rivals.work import READY
from shop.staff import sale_control
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import free_port

# A server with several workers: each of them is asked, more or less, before it counts as ready.
PROBES = 8
RIVAL_FLAGS = ["--host", HOST, "--workers", "2", "--backlog", "8192", "--backpressure", "8192", "--no-ws"]
COUNTS = "SELECT count(*) FILTER (WHERE state = 'held'), count(*) FROM shop_order WHERE sale_id = %s"


class Tally(NamedTuple):
    """What a sale came to. orders: of buyers with a unit; decided: buyers with a unit or a refusal on record."""

    units: int
    orders: int
    decided: int


class RivalSeller:
    """A rival, sold by the server that has nothing but rivals.

    correct: whether it promises that nothing is oversold, lost or undersold in a run without crashes. environment: what
    its processes get besides.
    """

    environment: Mapping[str, str] = {"DJANGO_SETTINGS_MODULE": "loadtest.rivals.lean_settings"}

    def __init__(self, rival: Rival) -> None:
        self.name, self.title, self.correct = rival.name, rival.title, rival.correct
        self._rival = rival

    def prepare(self, sale: str, *, units: int) -> None:
        """Put `units` on sale."""
        self._rival.prepare(sale, units=units)

    def address(self, sale: str) -> str:
        """Return the path that buyers ask."""
        return f"/rivals/{self.name}/sales/{sale}/requests"

    def commands(self, sale: str, *, port: int) -> dict[str, list[str]]:
        """Return the arguments of Python for each process, the web's as "web"."""
        work = ["-m", "loadtest.rivals.work", self.name, sale]
        options = ["--port", str(port), "--blocking-threads", str(self._rival.threads)]
        web = ["-m", "granian", *RIVAL_FLAGS, "--interface", "wsgi", *options, "shop.wsgi:application"]
        return {"web": web} | {f"worker {number}": work for number in range(self._rival.workers)}

    def has_begun(self, worker: ChildProcess) -> bool:
        """Say whether a worker that was started works."""
        return worker.log_path is not None and READY in worker.log_path.read_text(errors="replace")

    def waiting(self, sale: str) -> int:
        """Return how many buyers wait to be decided."""
        return self._rival.waiting(sale)

    def close(self, sale: str) -> None:
        """End the sale: buyers who still wait are told. Nobody waits here for a unit that may come back."""

    def tally(self, sale: str) -> Tally:
        """Count in the database."""
        books = self._rival.books(sale)
        decided = RivalOrder.objects.filter(sale=sale).count()
        return Tally(books.units, books.orders, decided)

    def settled_between(self, sale: str, *, begin: float, seconds: float) -> int:
        """Return how many buyers got their unit in so many seconds from `begin` (s since 1970)."""
        window = [datetime.fromtimestamp(at, UTC) for at in (begin, begin + seconds)]
        held = RivalOrder.objects.filter(sale=sale, state=RivalOrder.HELD)
        return int(held.filter(decided_at__gte=window[0], decided_at__lt=window[1]).count())

    def faults(self, sale: str) -> list[str]:
        """Return what an audit finds, where there is one."""
        return []


class FairdropSeller:
    """Fairdrop as the demo starts it, with the same methods: one web process with the gate, one settler."""

    name, title, correct = OURS, OUR_TITLE, True
    environment: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._fixtures: dict[str, Fixture] = {}
        self._units: dict[str, int] = {}

    def prepare(self, sale: str, *, units: int) -> None:
        self._fixtures[sale], self._units[sale] = make_fixture(sale, units=units), units

    def address(self, sale: str) -> str:
        return f"/api/v1/sales/{sale}/requests"

    def commands(self, sale: str, *, port: int) -> dict[str, list[str]]:
        return {"web": [*GATE, "--port", str(port)], "settler": ["manage.py", "run_worker", "settler"]}

    def has_begun(self, worker: ChildProcess) -> bool:
        return any(each.who.endswith(f":{worker.pid}") for each in heartbeats.workers(connect()))

    def waiting(self, sale: str) -> int:
        return int(run_commands(connect(), [("ZCARD", keys.line(sale))])[0])

    def close(self, sale: str) -> None:
        sale_control.close(sale, actor="benchmark", reason="the comparison is over")

    def tally(self, sale: str) -> Tally:
        orders, decided = one_row(COUNTS, self._fixtures[sale].sale_id)
        return Tally(self._units[sale], orders, decided)

    def settled_between(self, sale: str, *, begin: float, seconds: float) -> int:
        return decided_between([self._fixtures[sale].sale_id], begin=begin, seconds=seconds)[1]

    def faults(self, sale: str) -> list[str]:
        return faults_of(self._fixtures[sale].scope)


Seller = RivalSeller | FairdropSeller


@contextmanager
def running(seller: Seller, sale: str, *, place: Workspace) -> Iterator[tuple[int, list[ChildProcess]]]:
    """Run web and workers for the length of a `with` block; give the port and the processes, which are ready.

    Raises ServerFailed when they do not start.
    """
    port, children = free_port(), list[ChildProcess]()
    place = replace(place, environment={**place.environment, **seller.environment})
    with ExitStack() as stack:
        for name, arguments in seller.commands(sale, port=port).items():
            child = place.child(f"{sale} {name}", arguments)
            stack.callback(child.stop)
            children.append(child.start())
        for _ in range(PROBES):
            # A call that nobody may make is refused: then everything is loaded, and nothing was sold.
            wait_until_ready(children[0], partial(status_of, port, seller.address(sale)), wanted="401")
        for worker in children[1:]:
            wait_until_ready(worker, partial(seller.has_begun, worker), wanted=True)
        yield port, children
