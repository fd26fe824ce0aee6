"""Shows to Prometheus what belongs to one web process: refusals, streams, and how old what it shows of each sale is.
Never blocks, and asks no store. How the sales stand is the same for all processes: a reconciler shows it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from inventory.redis import clocks
from inventory.telemetry import page
from inventory.telemetry.families import family, labels
from shop.gate.sales.cache import Board
from shop.gate.sales.state import SaleEntry
from shop.gate.sse import Streams
from shop.replies import REFUSED, Head

PROCESS = "web"
HEAD = Head(200, [(b"content-type", page.CONTENT_TYPE.encode())])


def figures_age(entries: Sequence[SaleEntry]) -> str:
    """Return how long ago this process read each open sale."""
    now, moment = clocks.seconds(), time.monotonic()
    ages = [
        (labels(sale=entry.card.slug), round(moment - entry.seen_at, 2))
        for entry in entries
        # One that is over, or opens much later, is looked at in turn: its age would say nothing.
        if entry.figures is not None and entry.state_at(now) == "open"
    ]
    return family("fairdrop_figures_age_seconds", "Since they were read", samples=ages)


def families(board: Board, streams: Streams) -> list[str]:
    """Return what a web process shows beyond what every process counts."""
    refused = [(labels(code=code), count) for code, count in {"rate_limited": 0, **REFUSED}.items()]
    return [
        family("fairdrop_refusals_total", "Calls the gate refused, by code", samples=refused, kind="counter"),
        clocks.clock_family(),
        figures_age(board.entries()),
        family("fairdrop_streams", "Open streams of events", samples=[("", len(streams))]),
    ]


def render(board: Board, streams: Streams) -> bytes:
    """Return everything as Prometheus reads it."""
    return page.render(PROCESS, families(board, streams))
