"""The demo ends everything it started, whatever was killed before, and refuses with one sentence."""

from __future__ import annotations

import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg
import pytest

from inventory.signing import Signer
from tests.integration.workers.test_metrics_ports import samples
from tests.support.crashes.demo_run import (
    END_SECONDS,
    DemoRun,
    answers,
    demo_running,
    refused_demo,
    still_there,
    wait_for,
)
from tests.support.http_calls import Caller
from tests.support.waiting import Timed, assert_quickest_within, timed, wait_until
from workers.demo import run as demo
from workers.demo.guard import DemoRefused, refuse_busy_port
from workers.embedded import server
from workers.embedded.server import free_port

WEB, SETTLER, VALKEY, POSTGRES = "workers run_web", "run_worker settler", "valkey-server|redis-server", "postgres -D"
EDITIONS = "demo_editions"
# What shows what it counts, in the order of the ports.
KINDS = [kind for kind, many in demo.WORKERS.items() for _ in range(many)] + ["web"]
# Lets it open earlier when it is told when; of a moment that is NULL nothing is made.
NEWEST_EDITION = """
UPDATE shop_sale SET opens_at = least(opens_at, %s::timestamptz)
WHERE id = (SELECT id FROM shop_sale WHERE slug LIKE 'print-%%-drop' ORDER BY id DESC LIMIT 1)
RETURNING split_part(slug, '-', 2)::int
"""
AWAY_SECONDS, LOOK_SECONDS = 5.0, 0.05
# The pauses have grown to their longest after three.
KILLS = 8


@pytest.fixture(scope="module")
def first_port() -> int:
    """Return the first of as many free ports in a row as the shared demo has processes."""
    return ports_in_a_row(len(KINDS))


@pytest.fixture(scope="module")
def shared_demo(first_port: int) -> Iterator[DemoRun]:
    """Run a demo for all tests that leave it as it was; each of its processes shows what it counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRDROP_METRICS_ADDRESS", f"127.0.0.1:{first_port}")
        with demo_running() as run:
            yield run


@pytest.fixture
def run(shared_demo: DemoRun) -> DemoRun:
    """Return the shared demo when it is whole, whatever the test before has killed."""
    wait_until(lambda: answers(shared_demo.port), what="the shop answers")
    wait_until(lambda: all(map(shared_demo.children, (WEB, SETTLER, VALKEY, POSTGRES, EDITIONS))), what="all are there")
    return shared_demo


@pytest.mark.parametrize("killed_first", [None, WEB, SETTLER, VALKEY, POSTGRES])
def test_ctrl_c_ends_every_process(killed_first: str | None) -> None:
    with demo_running() as run:
        family = run.family()
        assert len(family) >= 5  # the control: web, two settlers and two servers are seen
        if killed_first:
            run.child(killed_first).kill()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(timeout=END_SECONDS) == 0
        assert wait_for(lambda: not still_there(family), seconds=END_SECONDS), still_there(family)
        assert not (run.state_dir / "demo.env").exists()


def test_the_demo_waits_ten_seconds_for_its_children_at_most() -> None:
    """What it promises, whatever the machine takes."""
    stages = (demo.CROWD_STOP_SECONDS, demo.WEB_STOP_SECONDS, demo.WORKER_STOP_SECONDS)
    assert sum(stages) + demo.VALKEY_STOP_SECONDS + demo.POSTGRES_STOP_SECONDS <= 10


def test_each_process_of_the_demo_shows_what_it_counts_at_a_port_of_its_own(run: DemoRun, first_port: int) -> None:
    def shown(port: int) -> str:
        build = next((name for name in samples(port) if name.startswith("fairdrop_build_info{")), "")
        return build.partition("{")[2].partition(",")[0]

    ports = range(first_port, first_port + len(KINDS))
    wait_until(lambda: list(map(shown, ports)) == KINDS, what="each shows its own")


def ports_in_a_row(many: int) -> int:
    """Return a free port after which as many others are free that there are `many`."""

    def is_free(port: int) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) != 0

    def found() -> int:
        first = free_port()
        if not all(map(is_free, range(first, first + many))):
            return 0
        server._given.update(range(first, first + many))  # the demo's own draw must not give them again
        return first

    return wait_until(found, what=f"{many} free ports in a row")


def test_a_killed_demo_takes_its_children_along() -> None:
    with demo_running() as run:
        family = run.family()
        run.process.kill()
        assert wait_for(lambda: not still_there(family), seconds=END_SECONDS), still_there(family)


def test_each_run_signs_by_a_key_of_its_own(run: DemoRun) -> None:
    """Else a browser that kept its ticket of another run would bring that place into a line of this one."""
    own = dict(line.split("=", 1) for line in (run.state_dir / "demo.env").read_text().splitlines())
    text, _, signature = Caller(run.port).new_buyer().token.rpartition(".")
    kept = (run.state_dir / "secret").read_text().strip()  # the same in each run
    signers = [Signer([key], purpose="buyer") for key in (own["FAIRDROP_TOKEN_KEYS"], f"{kept}:tokens")]
    assert [each.verify(text, signature) for each in signers] == [True, False]


def test_killed_children_come_back_and_a_second_demo_is_refused(run: DemoRun) -> None:
    second = refused_demo(run.state_dir, port=run.port)
    assert second.returncode == 1
    assert "already running" in second.stderr
    assert f"process {run.process.pid}" in second.stderr
    assert second.stdout == ""
    assert len(second.stderr.splitlines()) == 1
    assert run.process.poll() is None

    for pattern in (WEB, SETTLER):
        assert wait_for(kill(run, pattern), seconds=END_SECONDS)
    assert wait_for(lambda: answers(run.port), seconds=END_SECONDS)


def test_the_shop_is_away_for_five_seconds_at_most_whatever_is_killed(run: DemoRun) -> None:
    """Also when it was killed before: pauses grow to two seconds only. The control: a dead web process is missed."""
    for pattern in (SETTLER, VALKEY, POSTGRES, WEB):
        assert_soon_back(run, pattern)
    wait_until(lambda: kill_and_look(run, WEB).missed, what="a dead web process is missed")


def assert_soon_back(run: DemoRun, pattern: str) -> None:
    """Fail unless a killed child is once started again in time, and the shop answers in time where the machine is free.

    What a start takes is the machine's; what passes before it is the demo's, however busy the machine is.
    """
    took, dead = list[Timed](), list[float]()
    while not took or (max(took[-1].seconds, min(dead)) >= AWAY_SECONDS and len(took) < KILLS):
        away, whole = timed(partial(kill_and_look, run, pattern))
        took.append(Timed(away.seconds, whole.lost_seconds * away.seconds / whole.seconds))
        dead.append(away.dead_seconds)
    assert min(dead) < AWAY_SECONDS, dead
    assert_quickest_within(AWAY_SECONDS, took)


def test_the_editions_outlive_their_database(run: DemoRun) -> None:
    """The same process makes the next edition. The control: killed itself, another one follows."""
    shop, editions = Caller(run.port), run.child(EDITIONS)

    def is_listed(number: int) -> bool:
        answer = shop.get("/api/v1/sales") if answers(run.port) else None
        return answer is not None and f'"print-{number}-drop"'.encode() in answer.body

    newest = wait_until(lambda: newest_edition(run), what="an edition is made")
    wait_until(lambda: is_listed(newest), what="it is listed")
    wait_until(kill(run, POSTGRES), what="PostgreSQL is back")
    wait_until(lambda: newest_edition(run, opens_at=datetime.now(UTC)), what="it is open, so that the next one is due")
    wait_until(lambda: is_listed(newest + 1), what="the next edition is listed")
    assert run.child(EDITIONS).pid == editions.pid
    wait_until(kill(run, EDITIONS), what="there are editions again")


def newest_edition(run: DemoRun, *, opens_at: datetime | None = None) -> int:
    """Return the number of the newest edition, 0 while there is none or no database. opens_at: at the latest."""
    (url,) = re.findall("^DATABASE_URL=(.+)$", (run.state_dir / "demo.env").read_text(), flags=re.MULTILINE)
    try:
        with psycopg.connect(url, autocommit=True) as own:
            row = own.execute(NEWEST_EDITION, [opens_at]).fetchone()
    except psycopg.OperationalError:
        return 0
    return row[0] if row else 0


class Away(NamedTuple):
    """The longest time without an answer, how many calls got none, and how long there was no process."""

    seconds: float
    missed: int
    dead_seconds: float


def kill_and_look(run: DemoRun, pattern: str) -> Away:
    """Kill a child; return how the shop was away until it is back and the shop answers."""
    successor = kill(run, pattern)
    killed_at = time.time()
    missed, longest, answered_at, deadline = 0, 0.0, time.monotonic(), time.monotonic() + END_SECONDS
    is_back = False
    while not is_back:
        assert time.monotonic() < deadline, "it did not come back"
        another = successor()
        if answers(run.port):
            longest, answered_at = max(longest, time.monotonic() - answered_at), time.monotonic()
            is_back = another is not None
        else:
            missed += 1
        time.sleep(LOOK_SECONDS)
    assert another is not None
    return Away(longest, missed, another.create_time() - killed_at)


def kill(run: DemoRun, pattern: str) -> Callable[[], psutil.Process | None]:
    """Kill a child; return what gives the process that took its place, None before that: none that was there then."""
    before = {each.pid for each in run.family()}
    run.child(pattern).kill()

    def successor() -> psutil.Process | None:
        try:
            child = next((each for each in run.children(pattern) if each.pid not in before), None)
            return child if child and child.create_time() else None  # it knows when it began
        except psutil.NoSuchProcess:
            return None

    return successor


@pytest.mark.parametrize("port", [-1, 0, 65536, 70_000])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(DemoRefused, match="from 1 to 65535"):
        refuse_busy_port(port)


def test_a_port_of_root_s_is_not_said_to_be_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(_self: object, _address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("workers.demo.guard.socket.socket", type("Probe", (socket.socket,), {"bind": bind}))
    with pytest.raises(DemoRefused, match="Only root may use port 80"):
        refuse_busy_port(80)


def test_a_busy_port_is_one_sentence() -> None:
    with socket.socket() as listener, tempfile.TemporaryDirectory() as folder:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        refused = refused_demo(Path(folder), port=port)
    assert refused.returncode == 1
    assert f"Port {port} is busy" in refused.stderr
    assert "PORT=" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stdout == ""
