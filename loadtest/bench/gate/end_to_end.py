"""Measures the whole road on all cores together: ask, admit, line, take, settle, durable decision in PostgreSQL.
Never counts a decision that the database does not have.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings
from django.db import connection

from inventory.audit import line as audit_line
from inventory.audit.run import audit
from inventory.line import reading
from inventory.redis import Client, connect
from loadtest.bench.gate.admission import ADMITTED, refuse_other_answers
from loadtest.bench.gate.plan import Plan
from loadtest.bench.harness import processes
from loadtest.bench.harness.fixtures import Goods
from loadtest.bench.harness.servers import GATE, Side, Workspace, serving
from loadtest.bench.harness.shares import Crew
from loadtest.bench.load.loader import Load, Loader
from loadtest.bench.load.payloads import fresh_wishes
from loadtest.bench.load.wire import LoadFailed
from workers.embedded.child_process import ChildProcess

# More asks than this ahead of the settlers, and the loader rests: the line neither runs dry nor grows without end.
MAX_UNDECIDED = 6000
UNAVAILABLE = "503"
LOOK_SECONDS = 0.02
DRAIN_SECONDS = 60.0
MAX_PER_SECOND = 25_000
CLIENT_TIMEOUT_SECONDS = 5.0
IN_WINDOW = """
SELECT count(*), count(*) FILTER (WHERE state = 'held') FROM shop_order
WHERE sale_id = %s AND decided_at >= %s AND decided_at < %s
"""


@dataclass(frozen=True, kw_only=True)
class Road:
    """What some seconds of the whole road came to. waits: from the ask to its answer, in ms.

    unavailable: share of the asks that were answered 503: a store was too slow for a moment. shop_cpu_us: CPU of web,
    settlers and stores for one decision, where their processes are known.
    """

    decided_per_second: float
    seconds: float
    asked: int
    decided: int
    wait_p50_ms: float
    wait_p99_ms: float
    audit_faults: list[str]
    web_mib: float
    settler_mib: float
    unavailable: float = 0.0
    shop_cpu_us: float = float("nan")


class Backlog:
    """Says whether one more may be asked: how many were, less how many Redis says are decided."""

    def __init__(self, client: Client, sku: str, *, sale_id: int) -> None:
        self._client = client
        self._sku = sku
        self._sale_id = sale_id
        self._asked = 0
        self._before = self._decided = self._read()
        self._looked_at = 0.0

    def _read(self) -> int:
        seen = reading.figures(self._client, self._sku, sale_id=self._sale_id)
        return 0 if seen is None else seen.decided

    def may_ask(self, now: float) -> bool:
        """Say so, and count it as asked."""
        if now - self._looked_at >= LOOK_SECONDS:
            self._decided, self._looked_at = self._read(), now
        if self._asked - (self._decided - self._before) >= MAX_UNDECIDED:
            return False
        self._asked += 1
        return True


def measure_road(goods: Goods, *, plan: Plan, place: Workspace) -> Road:
    """Run web and settlers, load them, wait until everything is decided, audit, and read the processes' memory."""
    with ExitStack() as stack:
        hands = [start_settler(number, place=place, stack=stack) for number in range(plan.settlers)]
        web = stack.enter_context(serving("road", GATE, place=place, redis_url=settings.REDIS_URL, slug=goods.slug))
        return travel(
            goods,
            web=web,
            hands=hands,
            seconds=plan.road_seconds,
            warm_up_seconds=plan.road_warm_up_seconds,
            connections=plan.road_connections,
        )


def travel(
    goods: Goods,
    *,
    web: Side,
    hands: Sequence[ChildProcess],
    seconds: float,
    warm_up_seconds: float,
    connections: int,
    most_per_second: int = MAX_PER_SECOND,
    crew: Crew | None = None,
) -> Road:
    """Load a running shop, its web and its settlers (`hands`), as measure_road does. Raises LoadFailed.

    crew: every process of the shop, whose CPU time is counted.
    """
    client = connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS)
    wishes = fresh_wishes(goods.slug, port=web.port, count=int(most_per_second * (seconds + warm_up_seconds)))
    loader = Loader(
        web.port, connections=connections, may_send=Backlog(client, goods.sku, sale_id=goods.sale_id).may_ask
    )
    cpu = sum(crew.read().values()) if crew else float("nan")
    load = loader.run(wishes, seconds=seconds, warm_up_seconds=warm_up_seconds)
    refuse_other_answers(load, side="the whole road", also=UNAVAILABLE)
    wait_until_decided(client, goods.sku)
    cpu = sum(crew.read().values()) - cpu if crew else cpu
    memory = processes.memory_mib(web.child), max(processes.memory_mib(hand) for hand in hands)
    return result(goods, load, memory=memory, cpu_seconds=cpu)


def start_settler(number: int, *, place: Workspace, stack: ExitStack) -> ChildProcess:
    """Start one settler, which `stack` stops."""
    arguments = ["manage.py", "run_worker", "settler"]
    settler = place.child(f"settler {number}", arguments, redis_url=settings.REDIS_URL)
    stack.callback(settler.stop)
    return settler.start()


def wait_until_decided(client: Client, sku: str) -> None:
    """Return when nobody waits any more. Raises LoadFailed when that takes too long."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while (state := audit_line.look(client, sku)).waiting or state.in_flight:
        if time.monotonic() > deadline:
            raise LoadFailed(f"{state.waiting} requests still wait {DRAIN_SECONDS:g} s after the last ask")
        time.sleep(0.05)


def result(goods: Goods, load: Load, *, memory: tuple[float, float], cpu_seconds: float) -> Road:
    """Count in the database what was decided within the window, and audit the sale."""
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (load.began_at, load.began_at + load.seconds))
    with connection.cursor() as cursor:
        cursor.execute(IN_WINDOW, [goods.sale_id, begin, end])
        decided, held = cursor.fetchone()
    report = audit(goods.scope)
    faults = [f"{each['id']} {each['name']}: {each['detail']}" for each in report["invariants"] if not each["ok"]]
    # The probe that waited for the server asked once, before the loader did.
    asked = load.statuses[ADMITTED]
    in_books = report["counts"]["orders_held"]
    if held != decided or in_books < asked:
        faults.append(f"{asked} were told 202, {in_books} hold a unit")
    return Road(
        decided_per_second=decided / load.seconds,
        seconds=load.seconds,
        asked=asked,
        decided=in_books,
        wait_p50_ms=load.wait_ms(0.5),
        wait_p99_ms=load.wait_ms(0.99),
        audit_faults=faults,
        web_mib=memory[0],
        settler_mib=memory[1],
        unavailable=load.statuses[UNAVAILABLE] / sum(load.statuses.values()),
        shop_cpu_us=cpu_seconds * 1e6 / in_books,
    )
