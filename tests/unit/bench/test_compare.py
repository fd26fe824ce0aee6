"""The comparison can fail: a promise broken by anybody, a naive way that looked sound, a speed missed. And its crowd
counts what it was told. Needs no server of the shop.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from loadtest.bench.compare import run
from loadtest.bench.compare.crowd import CompareCrowd, make_payloads
from loadtest.bench.compare.plan import QUICK
from loadtest.bench.compare.report import Result, Selling, SellingOut, Waits, best_rival, figures_of
from loadtest.bench.harness.benchmark import BenchmarkRun, Stores
from loadtest.bench.harness.servers import Workspace

WAITS = Waits(p50=1.0, p99=2.0, worst=3.0)
NAIVE, SOUND, SLOW, OURS = "naive", "sound", "slow", "fairdrop"


def result(name: str, *, settled: float, orders: int = 10, correct: bool = True, lost: int = 0) -> Result:
    """Return what a side with ten units came to."""
    selling = Selling(
        clicks_per_second=1.0, settled_per_second=settled, admission=WAITS, commits=1.0, commands=1.0,
        seller_cpu_ms=1.0, store_cpu_ms=1.0,
    )  # fmt: skip
    out = SellingOut(
        clicks_per_second=1.0, units=10, orders=orders, accepted=10, refused=5, lost=lost, unanswered=0, asked_all=True,
        admission=WAITS, decision=WAITS,
    )  # fmt: skip
    return Result(name=name, title=name, correct=correct, selling=selling, selling_out=out, faults=[])


GOOD = {
    NAIVE: result(NAIVE, settled=5_000, orders=12, correct=False),
    SOUND: result(SOUND, settled=1_000),
    SLOW: result(SLOW, settled=100),
    OURS: result(OURS, settled=8_000),
}


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ([], []),
        ([result(NAIVE, settled=1, correct=False)], ["naive: oversold + undersold + lost, must be seen to fail"]),
        ([result(SLOW, settled=1, orders=11)], ["slow: oversold + undersold + lost"]),
        ([result(SLOW, settled=1, orders=9)], ["slow: oversold + undersold + lost"]),
        ([result(OURS, settled=8_000, lost=1)], ["fairdrop: oversold + undersold + lost"]),
        ([result(OURS, settled=7_999)], ["Fairdrop ÷ best correct rival"]),
        ([result(SOUND, settled=1_001)], ["Fairdrop ÷ best correct rival"]),
    ],
)
def test_a_broken_promise_and_a_missed_floor_are_named(changed: list[Result], broken: list[str]) -> None:
    results = GOOD | {each.name: each for each in changed}
    assert [each.name for each in figures_of(list(results.values()), quick=False) if not each.ok] == broken


def test_a_quick_run_holds_promises_but_no_speed() -> None:
    results = list((GOOD | {OURS: result(OURS, settled=10)}).values())
    assert all(each.ok for each in figures_of(results, quick=True))


def test_a_rival_that_broke_its_promise_is_no_measure() -> None:
    assert best_rival(list(GOOD.values())) == GOOD[SOUND]
    assert best_rival([GOOD[NAIVE], GOOD[OURS]]) is None
    assert [each.name for each in figures_of([GOOD[NAIVE], GOOD[OURS]], quick=False) if math.isnan(each.value)] == [
        "best correct rival (none)",
        "Fairdrop ÷ best correct rival",
        "the same, orders per second of CPU of sellers and stores",
    ]


def test_a_unit_that_nobody_wanted_is_not_undersold() -> None:
    out = result(SOUND, settled=1, orders=4).selling_out
    assert out.undersold == 6
    assert replace(out, refused=0).undersold == 0


def test_the_terminal_says_of_each_way_how_many_units_were_wrong_while_it_runs_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = [GOOD[NAIVE], result(SLOW, settled=1, orders=9), GOOD[OURS]]
    left = iter(found)
    monkeypatch.setattr(run, "RIVALS", dict.fromkeys((NAIVE, SLOW)))
    monkeypatch.setattr(run, "RivalSeller", lambda _: next(left))
    monkeypatch.setattr(run, "FairdropSeller", lambda: next(left))
    monkeypatch.setattr(run, "children_of", lambda _: {})
    monkeypatch.setattr(run, "sell", lambda seller, **_: (seller.selling, []))
    monkeypatch.setattr(run, "sell_out", lambda seller, **_: (seller.selling_out, []))
    place = Workspace(checkout=tmp_path, environment={}, folder=tmp_path)
    stores = Stores(pairs=[None], environment={})  # type: ignore[list-item]
    run.measure(BenchmarkRun(plan=QUICK, quick=True, stores=stores, place=place, hardware={}))
    said = capsys.readouterr().out.splitlines()
    assert "  naive   oversold 2   undersold 0" in said
    assert "  slow   oversold 0   undersold 1" in said
    table = [line.split() for line in said[-len(found) - 2 :]]
    assert table[0][-4:] == ["orders", "oversold", "undersold", "lost"]
    assert [line[-4:] for line in table[2:]] == [["12", "2", "0", "0"], ["9", "0", "1", "0"], ["10", "0", "0", "0"]]


UNITS = 6


class Till(BaseHTTPRequestHandler):
    """Tells every buyer busy once, then the first six queued and held after two looks, all others sold out."""

    protocol_version = "HTTP/1.1"
    asked: Counter[str]
    looked: Counter[str]
    queued: dict[str, None]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        buyer = self.headers["Authorization"]
        self.asked[buyer] += 1
        if self.asked[buyer] == 1:
            return self.tell(503, "busy")
        if len(self.queued) < UNITS:
            self.queued[buyer] = None
        return self.tell(202, "queued") if buyer in self.queued else self.tell(409, "sold_out")

    def do_GET(self) -> None:
        buyer = self.headers["Authorization"]
        self.looked[buyer] += 1
        self.tell(200, "queued" if self.looked[buyer] == 1 else "held")

    def tell(self, status: int, state: str) -> None:
        body = json.dumps({"state": state, "status_url": "/look"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def till() -> Iterator[type[Till]]:
    """Run a till; give its class, which knows what was asked, and in `port` where it listens."""

    class OwnTill(Till):
        asked, looked, queued = Counter(), Counter(), {}

    with ThreadingHTTPServer(("127.0.0.1", 0), OwnTill) as server:
        OwnTill.port = server.server_port
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield OwnTill
        server.shutdown()
        thread.join()


def test_the_crowd_repeats_asks_again_and_follows_to_the_decision(till: type[Till]) -> None:
    payloads = make_payloads("/ask", port=till.port, count=20, repeated=0.5, seed=7)
    assert 20 < len(payloads.clicks) < 40
    assert Counter(payloads.clicks).most_common()[0][1] == 2
    crowd = CompareCrowd(payloads, port=till.port, connections=4, follow=1)
    visit = crowd.visit(seconds=30, until_all_asked=True)
    assert visit.asked_all
    assert (visit.accepted, visit.refused) == (UNITS, 20 - UNITS)
    assert visit.statuses["503"] == 20
    assert sum(visit.statuses.values()) == sum(till.asked.values()) == visit.clicks
    assert len(visit.decisions) == 20
    # Two looks at least stand between a place in the line and its decision.
    assert sum(waited >= 50 for waited in visit.decisions) >= UNITS
    assert all(till.looked[buyer] >= 2 for buyer in till.queued)


def test_a_crowd_that_nobody_lets_in_asks_nothing(till: type[Till]) -> None:
    """The control of the crowd's rest."""
    payloads = make_payloads("/ask", port=till.port, count=20, repeated=0.0, seed=7)
    visit = CompareCrowd(payloads, port=till.port, connections=4, may_ask=lambda now: False).visit(seconds=0.2)
    assert (visit.clicks, sum(till.asked.values())) == (0, 0)
