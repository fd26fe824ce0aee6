"""Measures "sold out" alongside a server that does nothing: the same server, the same connections, in turns.
Never lets a buyer ask twice: nobody is remembered from an earlier click.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from django.conf import settings

from inventory.redis import connect
from loadtest.bench.gate.admission import AdmissionPlan, Contender, Turn, measure_in_turns, pin, two_cores
from loadtest.bench.gate.settlement import fill_line
from loadtest.bench.harness.fixtures import make_goods
from loadtest.bench.harness.servers import GATE, NOOP, Workspace, serving

NOOP_SIDE, SOLD_OUT_SIDE = "no-op", "sold out"
REFUSED = "409"
UNITS, ROOM = 1_000, 200
# More than a core can answer.
MAX_BUYERS_PER_SECOND = 60_000


def measure_sold_out(*, plan: AdmissionPlan, place: Workspace, report: Callable[[Turn], None]) -> list[Turn]:
    """Measure both servers on one core, the loader and Redis on another. Raises LoadFailed, ServerFailed."""
    server_core, loader_core = two_cores()
    plenty, gone = make_goods("bench-plenty"), make_goods("bench-sold-out", units=UNITS)
    fill_line(connect(), gone, count=UNITS + ROOM)
    with ExitStack() as stack:
        noop, gate = (
            stack.enter_context(serving(name, app, place=place, redis_url=settings.REDIS_URL, slug=plenty.slug))
            for name, app in ((NOOP_SIDE, NOOP), (SOLD_OUT_SIDE, GATE))
        )
        pin((noop, gate), server_core=server_core)
        contenders = (
            Contender(side=noop, slug=gone.slug, buyers_per_second=0),
            Contender(side=gate, slug=gone.slug, buyers_per_second=MAX_BUYERS_PER_SECOND, status=REFUSED),
        )
        return measure_in_turns(contenders, plan=plan, loader_core=loader_core, report=report)
