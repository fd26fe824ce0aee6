"""`python -m loadtest.bench.gate.profile`: prints where the web process's time for one ask goes.
By subtraction: the same connections without sockets, each step with one part more. Then what may cost a few of a
hundred, with floors, below which it fails; and the functions that cost most.
Starts its own stores, writes nothing, ends within a minute.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any

import uvloop

from loadtest.bench.gate.bare_server import Bare
from loadtest.bench.harness.benchmark import say
from loadtest.bench.harness.command import one_shop, own_folder

if TYPE_CHECKING:
    from inventory.line.admission import Answer, Ask, SaleLine
    from shop.gate.router import Gate

CONNECTIONS = 256
ROUNDS = 60  # the quickest counts: everything else on the machine only adds
PROFILED_ROUNDS = 20
SHOWN = 25
PATIENCE_SECONDS = 20.0
# One after the other, with and without: the middle of the ratios counts.
PAIRS = 300
# As many as have a thread. What is measured with and without, and of the pace without how much must be left.
PAGES = 4
FLOORS = {
    "ask": ("admission with headers, ids, metrics and traces ÷ without", 0.98),
    "page": ("a page of Django from its bounded pool, with all that ÷ without", 0.95),
}


class CountedAnswers:
    """How many answers are still wanted."""

    def __init__(self) -> None:
        self.wanted = 0
        self.all = asyncio.Event()

    def count(self, _data: Any) -> None:
        """Count one."""
        self.wanted -= 1
        if self.wanted == 0:
            self.all.set()


class NoSocket(asyncio.Transport):
    """A transport that keeps nothing of what is written."""

    def __init__(self, answers: CountedAnswers) -> None:
        super().__init__()
        self.write: Any = answers.count

    def is_closing(self) -> bool:
        """Say no."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Know nothing."""
        return default


class Bench:
    """Connections without sockets to one application."""

    def __init__(self, connections: list[Any]) -> None:
        self.answers = CountedAnswers()
        self.connections = connections
        for connection in self.connections:
            connection.connection_made(NoSocket(self.answers))

    async def ask(self, requests: list[bytes], *, writes: int = 1) -> None:
        """Send one request on each connection and wait for all answers; writes: of which each answer consists."""
        self.answers.wanted = writes * len(requests)
        self.answers.all.clear()
        for connection, request in zip(self.connections, requests, strict=False):
            connection.data_received(request)
        await asyncio.wait_for(self.answers.all.wait(), PATIENCE_SECONDS)


def connections_to(application: Any) -> list[Any]:
    """Return connections of the web process."""
    from uvicorn.server import ServerState

    from shop.gate.server.protocol import GateProtocol
    from shop.gate.server.server import server_of

    config = server_of(application, host="127.0.0.1", port=0).config
    config.load()
    state = ServerState()
    return [GateProtocol(config=config, server_state=state, app_state={}) for _ in range(CONNECTIONS)]


class Constant:
    """Answers every call with the same bytes."""

    def hot_call(self, _method: bytes, _target: bytes, _headers: Any, _connection: str) -> Any:
        """Name the call hot."""
        from shop.replies import ACCEPTED

        return (lambda reply, *_: reply.send(ACCEPTED, b"{}")), None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Do nothing."""


class Steps:
    """The same asks with one part more each time."""

    def __init__(self, gate: Gate, entry: Any) -> None:
        self._entry = entry
        self.bench = Bench(connections_to(gate))
        bare, constant = Bench([Bare() for _ in range(CONNECTIONS)]), Bench(connections_to(Constant()))
        self.all: dict[str, Callable[[list[bytes]], Awaitable[None]]] = {
            "httptools alone: parse, write": bare.ask,
            "our HTTP: headers, route, order, deadlines": constant.ask,
            "token, body, request id, sold out from memory": self._sold_out,
            "batch, ticket, answer": self._without_redis,
            "Redis: pack, wait, unpack": self.bench.ask,
        }

    async def _sold_out(self, requests: list[bytes]) -> None:
        self._entry.is_surely_sold_out = lambda _buyer: True
        await self.bench.ask(requests)
        del self._entry.is_surely_sold_out

    async def _without_redis(self, requests: list[bytes]) -> None:
        from inventory.line import admission
        from inventory.line.admission import Answer, Code

        async def admit(client: Any, line: SaleLine, asks: Sequence[Ask]) -> list[Answer]:
            return [Answer(Code.ADMITTED, 1, 1, 1, number) for number, _ in enumerate(asks)]

        real, admission.admit_async = admission.admit_async, admit
        await self.bench.ask(requests)
        admission.admit_async = real


async def measure(gate: Gate, slug: str) -> bool:
    """Print the table and the profile; say whether every floor is kept."""
    from loadtest.bench.load.payloads import endless_payloads

    # One after the other: asks of an address or a network that has asked too often are refused.
    payloads = endless_payloads(slug, port=80)
    gate._start()
    while (entry := gate._board.known(slug)) is None or entry.figures is None:
        await asyncio.sleep(0.05)
    steps = Steps(gate, entry)
    found: dict[str, list[float]] = {name: [] for name in steps.all}
    for _ in range(ROUNDS):
        for name, ask in steps.all.items():
            requests = list(islice(payloads, CONNECTIONS))
            began = time.process_time()
            await ask(requests)
            found[name].append((time.process_time() - began) / CONNECTIONS * 1e6)
    before = 0.0
    for name, times in found.items():
        say(f"{min(times) - before:8.2f} µs  {name}")
        before = min(times)
    say(f"{before:8.2f} µs  in all, without sockets, in batches of {CONNECTIONS}: the quickest of {ROUNDS} rounds\n")
    kept = await measure_marks(steps.bench, payloads, slug=slug)
    await profile([list(islice(payloads, CONNECTIONS)) for _ in range(PROFILED_ROUNDS)], steps.bench)
    await gate._stop()
    return kept


async def measure_marks(bench: Bench, payloads: Iterator[bytes], *, slug: str) -> bool:
    """Print what the marks of an answer and the bound of a pool leave of the pace; say whether each keeps its floor."""
    from loadtest.bench.gate.unmarked_server import unmarked
    from loadtest.bench.load.payloads import get
    from shop.buyers import issue_buyer

    cookie = f"Cookie: buyer={issue_buyer()[1]}\r\n"
    page = [get(f"/sales/{slug}/?quantity=1", port=80, headers=cookie)] * PAGES
    found: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for number in range(PAIRS):
        for is_marked in (True, False) if number % 2 else (False, True):
            with nullcontext() if is_marked else unmarked():
                for name, requests in (("ask", list(islice(payloads, CONNECTIONS))), ("page", page)):
                    began = time.process_time()
                    await bench.ask(requests, writes=1 if name == "ask" else 2)
                    found[name, is_marked].append((time.process_time() - began) / len(requests) * 1e6)
    kept = []
    for name, (about, floor) in FLOORS.items():
        with_marks, without = found[name, True], found[name, False]
        left = median(each / marked for each, marked in zip(without, with_marks, strict=True))
        say(f"{left:8.3f}     {about}: {median(with_marks):,.1f} and {median(without):,.1f} µs, at least {floor}")
        kept.append(left >= floor)
    say("")
    return all(kept)


async def profile(rounds: list[list[bytes]], bench: Bench) -> None:
    """Print the functions that cost most."""
    profiler = cProfile.Profile()
    profiler.enable()
    for requests in rounds:
        await bench.ask(requests)
    profiler.disable()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(SHOWN)
    say(text.getvalue())


def main() -> int:
    """Run the command."""
    # The gate that is measured runs in this very process: it waits for Redis as the shop's does.
    with own_folder() as folder, one_shop(folder, is_patient=False):
        from loadtest.bench.harness.fixtures import make_fixture
        from shop.asgi import application

        return 0 if uvloop.run(measure(application, make_fixture("profile").slug)) else 1


if __name__ == "__main__":
    sys.exit(main())
