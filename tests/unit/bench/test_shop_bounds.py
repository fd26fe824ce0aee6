"""The knee is found, waits count from the intended moment, and every floor of the whole shop can be missed."""

from __future__ import annotations

import http.server
import itertools
import math
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from inventory.audit.run import Scope
from loadtest.bench.gate import settlement
from loadtest.bench.gate.admission import Turn
from loadtest.bench.gate.end_to_end import Road
from loadtest.bench.harness import machine
from loadtest.bench.harness.charts import Curve, curves
from loadtest.bench.harness.fixtures import Fixture
from loadtest.bench.harness.report import Figure, filled
from loadtest.bench.load.arrivals import Answers, ArrivalRun, evenly
from loadtest.bench.load.payloads import address
from loadtest.bench.shop.costs import Brake, Cost
from loadtest.bench.shop.overload import (
    OverloadRun,
    Step,
    knee_of,
    next_offer,
    p99_of_all,
    share_sent,
    spread,
    well_after,
)
from loadtest.bench.shop.report import (
    cost_figures,
    memory_figures,
    overload_figures,
    road_figures,
    sold_out_figures,
    spike_figures,
)
from loadtest.bench.shop.spike import Spike
from loadtest.bench.summary import BENCHMARKS
from shop.client_address import origin_of
from tests.support.waiting import assert_waits_at_most, wait_until
from workers.embedded.child_process import ChildProcess


def search(truth: float) -> list[Step]:
    """Offer what next_offer wants to a shop that decides `truth` a second at most."""
    steps: list[Step] = []
    while len(steps) < 30 and (offered := next_offer(steps)) is not None:
        steps.append(Step(offered=offered, goodput=min(offered, truth)))
    return steps


@pytest.mark.parametrize("truth", [300.0, 1_500.0, 6_000.0, 12_345.0, 70_000.0])
def test_the_knee_is_found_in_few_steps(truth: float) -> None:
    steps = search(truth)
    knee = knee_of(steps)
    assert knee is not None
    # A step keeps up when 95 % is decided, and the next one that failed is 7 % above at most.
    assert truth / 1.07 <= knee.offered <= truth / 0.95
    assert len(steps) <= 16


def test_a_shop_that_keeps_up_with_nothing_has_no_knee() -> None:
    steps = search(0.0)
    assert knee_of(steps) is None
    assert len(steps) < 10


def test_a_lucky_step_above_one_that_failed_ends_the_search() -> None:
    steps = [Step(offered=6_000, goodput=1_000), Step(offered=7_000, goodput=7_000)]
    assert next_offer(steps) is None
    assert knee_of(steps) == steps[1]


@pytest.mark.parametrize(
    ("p99_ms", "seconds"),
    [
        ([10, 10, 10], 0),
        ([90, 30, 20, 10], 2),
        ([90, 10, 90, 10], 3),
        ([90, 90, 90], math.inf),
        ([10, 10, math.nan], math.inf),  # nobody was answered: that is not well
    ],
)
def test_well_again_means_well_from_then_on(p99_ms: list[float], seconds: float) -> None:
    assert well_after(p99_ms, normal_ms=10, tolerance=2) == seconds


@pytest.mark.parametrize(("answered", "p99_ms"), [(1_000, 10.0), (991, 10.0), (990, math.inf), (0, math.inf)])
def test_who_is_never_told_202_has_waited_for_ever(answered: int, p99_ms: float) -> None:
    assert p99_of_all([10.0] * answered, offered=1_000) == p99_ms


def test_spread_is_half_the_range_over_its_middle() -> None:
    assert spread([85, 100, 115]) == pytest.approx(0.15)
    assert spread([5, 5]) == 0
    assert math.isnan(spread([0, 0]))


class Slow(http.server.BaseHTTPRequestHandler):
    """Answers each request after a while, and the first of each buyer with 503 when it is told to."""

    protocol_version = "HTTP/1.1"
    pause_seconds = 0.0
    shed: set[str]

    def do_GET(self) -> None:
        time.sleep(self.pause_seconds)
        status = 503 if self.path in self.shed else 202
        self.shed.discard(self.path)
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[type[Slow]]:
    """Serve on a free port for the length of a test; the class says how."""
    handler = type("Handler", (Slow,), {"shed": set(), "port": 0})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        handler.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield handler
        listening.shutdown()
        thread.join()


def requests(count: int) -> list[bytes]:
    return [f"GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for number in range(count)]


def test_waits_count_from_the_intended_moment(server: type[Slow]) -> None:
    server.pause_seconds = 0.5
    # One connection: the second and third of three that come at once wait for those before them.
    answers = ArrivalRun(server.port, connections=1).run(requests(3), [0.0, 0.0, 0.0])
    waits = answers.waits_ms(202)
    assert [wait >= least for wait, least in zip(waits, (500, 1000, 1500), strict=True)] == [True] * 3

    def slowest_alone() -> float:
        return max(ArrivalRun(server.port, connections=3).run(requests(3), [0.0, 0.0, 0.0]).waits_ms(202)) / 1000

    # The control: over a connection each, none waits for another.
    assert_waits_at_most(1.5, slowest_alone)


def test_who_is_shed_asks_again_and_the_wait_goes_on(server: type[Slow]) -> None:
    server.shed.add("/1")
    answers = ArrivalRun(server.port, connections=2, retry_seconds=0.2).run(requests(2), [0.0, 0.0])
    assert (answers.statuses(), answers.shed) == ({202: 2}, 1)
    assert max(answers.waits_ms(202)) >= 200


def test_a_shed_answer_counts_when_nobody_asks_again(server: type[Slow]) -> None:
    server.shed.add("/1")
    answers = ArrivalRun(server.port, connections=2).run(requests(2), [0.0, 0.0])
    assert (answers.statuses(), answers.shed) == ({202: 1, 503: 1}, 0)


def test_who_cannot_be_sent_gives_up(server: type[Slow]) -> None:
    server.pause_seconds = 2.0
    answers = ArrivalRun(server.port, connections=1, patience_seconds=1.0).run(requests(9), [0.0] * 9)
    assert list(answers.given_up) == [0.0] * 8
    assert share_sent(answers.given_up, begin=0.0, end=1.0, offered=20) == 0.6
    assert answers.statuses() == {202: 1}


def test_who_gives_up_before_or_after_the_overload_is_no_part_of_it() -> None:
    assert share_sent([1.0, 6.0, 65.9, 66.0], begin=6, end=66, offered=8) == 0.75


def test_moments_are_even_and_phases_follow_each_other() -> None:
    moments = list(evenly((10, 1), (2, 2), (1, 1)))
    assert moments == pytest.approx([*(number / 10 for number in range(10)), 1.0, 1.5, 2.0, 2.5, 3.0])


def test_waits_are_sorted_into_the_second_they_were_intended_in() -> None:
    answers = Answers()
    for intended, came, status in ((0.5, 0.6, 202), (0.9, 2.9, 202), (1.0, 1.1, 409)):
        answers.intended.append(intended)
        answers.came.append(came)
        answers.status.append(status)
    assert {second: len(waits) for second, waits in answers.waits_by_second(202).items()} == {0: 2}
    assert answers.waits_ms(202, begin=0.8) == pytest.approx([2_000])


def test_the_brake_looks_at_one_line_only_when_it_is_told_to() -> None:
    waiting = iter([30, 30, 30, 20])
    brake = Brake(lambda: next(waiting))
    assert not any(brake.stop() for _ in range(20))
    brake.stops_at = 20
    # However often it is asked before other lines: only the length counts.
    assert [brake.stop() for _ in range(4)] == [False, False, False, True]


def test_cpu_time_of_a_process_that_ended_is_not_forgotten(tmp_path: Path) -> None:
    work = "sum(range(9_000_000))"
    script = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', '{work}']); print(1, flush=True)"
    child = ChildProcess(
        name="parent", arguments=[sys.executable, "-c", f"{script}; time.sleep(60)"], folder=tmp_path,
        log_path=tmp_path / "log",
    ).start()  # fmt: skip
    try:
        wait_until(lambda: (tmp_path / "log").read_text() == "1\n", what="the grandchild has ended")
        own = sum(psutil.Process(child.pid).cpu_times()[:2])
        assert machine.cpu_seconds(child) > own
    finally:
        child.stop()


ROAD = Road(
    decided_per_second=8_000, seconds=60, asked=1, decided=1, wait_p50_ms=1, wait_p99_ms=1, audit_faults=[],
    web_mib=1, settler_mib=1, cpu_us={"web": 37, "settler": 8, "PostgreSQL": 30, "Redis": 15},
)  # fmt: skip
SPIKE = Spike(
    waits_ms={202: [1_500.0], 409: [200.0]}, statuses={202: 1, 409: 1}, shed=0, silent=0, last_decision_seconds=5
)
NOOP = Spike(waits_ms={202: [250.0]}, statuses={202: 1}, shed=0, silent=0)
TURNS = [
    Turn(side=side, per_second=rate, busy=1, wait_p50_ms=1, wait_p99_ms=1)
    for side, rate in (("no-op", 20_000), ("sold out", 30_000))
]
SLOW_TURNS = [replace(turn, per_second=turn.per_second / 2) for turn in TURNS]
OVERLOAD = OverloadRun(
    steps=[], knee=Step(offered=10_000, goodput=10_000), begin=1, end=2, decided=[], p99_ms=[], offered=40_000,
    goodput=8_000, sent=1.0, normal_p99_ms=1, well_after_seconds=5, shop_cpu_us=100,
)  # fmt: skip
FLAT = {1: Cost(cpu_us=85, wall_us=1, bytes=230), 50: Cost(cpu_us=115, wall_us=1, bytes=310)}
STEEP = {1: Cost(cpu_us=80, wall_us=1, bytes=230), 50: Cost(cpu_us=115, wall_us=1, bytes=330)}


@pytest.mark.parametrize(
    ("figures", "broken"),
    [
        (road_figures(ROAD, copied=1, noop=26_000), 0),
        (road_figures(replace(ROAD, decided_per_second=7_999), copied=1, noop=26_000), 1),
        (road_figures(ROAD, copied=1, noop=27_000), 1),
        (road_figures(replace(ROAD, unavailable=0.002), copied=1, noop=26_000), 1),
        (road_figures(replace(ROAD, cpu_us={**ROAD.cpu_us, "settler": 9}), copied=1, noop=26_000), 1),
        (road_figures(replace(ROAD, cpu_us={**ROAD.cpu_us, "Redis": 16}), copied=1, noop=26_000), 1),
        (spike_figures([SPIKE], NOOP), 0),
        (spike_figures([replace(SPIKE, waits_ms={202: [1_501.0], 409: [201.0]})], NOOP), 2),
        (spike_figures([SPIKE, SPIKE, replace(SPIKE, statuses={202: 1, 500: 1})], NOOP), 1),
        (spike_figures([replace(SPIKE, silent=1)], NOOP), 1),
        (spike_figures([replace(SPIKE, last_decision_seconds=5.1)], NOOP), 1),
        (spike_figures([replace(SPIKE, waits_ms={202: [1.0]})], NOOP), 2),  # nobody was refused: nothing was shown
        (sold_out_figures(TURNS), 0),
        (sold_out_figures([TURNS[0], replace(TURNS[1], per_second=29_999)]), 1),
        # A machine that is slow for a round, or for one side of a round, changes nothing.
        (sold_out_figures([*TURNS, *SLOW_TURNS, replace(TURNS[0], per_second=4_000), TURNS[1]]), 0),
        (overload_figures(OVERLOAD, sustained_us=90), 0),
        (overload_figures(replace(OVERLOAD, shop_cpu_us=101, well_after_seconds=6), sustained_us=90), 2),
        (overload_figures(replace(OVERLOAD, well_after_seconds=math.inf), sustained_us=90), 1),
        (memory_figures(120, let_in=1_000_000), 0),
        (memory_figures(121, let_in=1_000_000), 1),
        (cost_figures(FLAT, FLAT, copied_us=50), 0),
        (cost_figures(STEEP, FLAT, copied_us=50), 2),
        (cost_figures(FLAT, STEEP, copied_us=50), 2),
    ],
)
def test_a_missed_floor_is_seen(figures: list[Figure], broken: int) -> None:
    assert len([figure.name for figure in figures if not figure.ok]) == broken


def test_an_ask_that_fills_a_line_names_its_network_as_the_gate_does(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = Fixture(
        slug="lamp", sku="lamp", sale_id=1, request_key=b"k", scope=Scope(sku="lamp", stock_id=1, sale_id=1),
        opens_at=datetime.now(UTC), network_limit=8,
    )  # fmt: skip
    monkeypatch.setattr(settlement, "NUMBERS", itertools.count())
    sent = [address(number).encode() for number in range(300)]
    networks = [origin_of(each, connection="127.0.0.1", proxies=1)[1] for each in sent]
    assert [settlement.fresh_ask(fixture).network for _ in sent] == networks
    assert len(set(networks)) == len(sent)


def test_figures_are_held_against_their_limit() -> None:
    found = {figure.name: figure.of_limit for figure in spike_figures([SPIKE], NOOP)}
    assert found["spike: refused, p99"] == pytest.approx(0.8)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_method_names_the_numbers_of_its_run(name: str) -> None:
    benchmark = import_module(f"loadtest.bench.{name}.run").BENCHMARK
    full, quick = ("\n".join(filled(benchmark.method, plan)) for plan in (benchmark.full, benchmark.quick))
    assert full != quick
    assert "{" not in full + quick


def test_curves_are_drawn_to_scale_and_gaps_are_left_out() -> None:
    line = [(1.0, 50.0), (10.0, math.nan), (100.0, 100.0)]
    text = curves([Curve(title="a & b", lines={"<us>": line}, logarithmic=True, band=0.15)], description="curve")
    drawn = [
        [tuple(map(float, point.split(","))) for point in str(each.get("points")).split()]
        for each in ElementTree.fromstring(text).iter()  # noqa: S314 - we have just written it
        if each.tag.endswith("polyline")
    ]
    ((first, last),) = drawn
    floor = 30 + 170
    assert (floor - last[1]) == pytest.approx(2 * (floor - first[1]), rel=0.01)
    assert "&lt;us&gt;" in text
