"""`manage.py run_web --workers`: several processes on one port; one that dies is replaced, and a stop ends them all.
The control is one process, which serves and stops in the same way.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from shop.gate.server.limits import MAX_CONNECTIONS
from tests.support.http_calls import Caller, answer_to
from tests.support.servers.shop_processes import running_process
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import free_port

STOP_SECONDS = 30.0


@contextmanager
def web_processes(
    environment: Mapping[str, str],
    folder: Path,
    *,
    workers: int,
    before: Sequence[str] = (),
    program: Sequence[str] = ("manage.py",),
    drain_seconds: int = 0,
) -> Iterator[tuple[Caller, ChildProcess]]:
    caller = Caller(free_port())
    command = [*before, sys.executable, *program, "run_web", "--port", str(caller.port), "--workers", str(workers)]
    command += ["--drain", str(drain_seconds)]

    def serves() -> bool:
        try:
            return caller.get("/healthz", timeout_seconds=1).status == 200
        except OSError:
            return False

    with running_process("web", command, environment=environment, folder=folder, stop_seconds=STOP_SECONDS) as child:
        wait_until(serves, what="the web process serves")
        yield caller, child


def says_replaced(caller: Caller) -> dict[str, Any]:
    """Return what /readyz says while the process leaves and both stores answer in time; else nothing."""
    answer = caller.get("/readyz")
    said = answer.json()
    leaves = answer.status == 503 and "replaced" in said.get("detail", "")
    return said if leaves and all(said["stores"].values()) else {}


def listeners(child: ChildProcess, port: int) -> list[int]:
    """Return the processes below `child`, itself too, that listen on `port`."""
    family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    return [each.pid for each in family if _listens(each, port)]


def _listens(process: psutil.Process, port: int) -> bool:
    try:
        connections = process.net_connections("tcp")
    except psutil.NoSuchProcess:  # it ended meanwhile
        return False
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)


@pytest.mark.parametrize(("program", "workers"), [(["manage.py"], 1), (["manage.py"], 3), (["-m", "workers"], 3)])
def test_a_stop_ends_every_process_in_order(
    process_environment: dict[str, str], tmp_path: Path, program: list[str], workers: int
) -> None:
    with web_processes(process_environment, tmp_path, workers=workers, program=program) as (caller, child):
        wait_until(lambda: len(listeners(child, caller.port)) == workers)
        # A first look at the catalogue that takes too long is answered 503.
        assert [answer_to(partial(caller.get, "/api/v1/sales")).status for _ in range(30)] == [200] * 30
        child.ask_to_stop()
        assert child.wait(timeout_seconds=PATIENCE_SECONDS)
        assert child.exit_code == 0, child.log_end()
        with pytest.raises(ConnectionRefusedError):
            caller.get("/healthz", timeout_seconds=1)


def test_a_process_that_leaves_says_so_and_answers_each_connection_once_more(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    """The control is the same connection before. A second signal ends the wait."""
    with (
        web_processes(process_environment, tmp_path, workers=1, drain_seconds=60) as (caller, child),
        caller.keeping() as call,
        caller.keeping() as call_page,
    ):
        for path, kept in (("/api/v1/sales", call), ("/privacy/", call_page)):
            assert "connection" not in kept("GET", path, body=None, headers={}).headers
        wait_until(lambda: caller.get("/readyz").status == 200, what="both stores answer in time")
        child.ask_to_stop()
        ready = wait_until(lambda: says_replaced(caller), what="it says that it leaves")
        assert ready["stores"] == {"redis": True, "database": True}
        for path, kept in (("/api/v1/sales", call), ("/privacy/", call_page)):
            answers = [kept("GET", path, body=None, headers={}), caller.get(path)]
            assert [answer.headers["connection"] for answer in answers] == ["close"] * 2
            assert {answer.status for answer in answers} <= {200, 404}
        psutil.Process(child.pid).send_signal(signal.SIGINT)
        assert child.wait(timeout_seconds=PATIENCE_SECONDS)
        assert child.exit_code == 0, child.log_end()


def test_a_process_that_dies_is_replaced(process_environment: dict[str, str], tmp_path: Path) -> None:
    with web_processes(process_environment, tmp_path, workers=2) as (caller, child):
        before = wait_until(lambda: len(found := listeners(child, caller.port)) == 2 and found)
        psutil.Process(before[0]).send_signal(signal.SIGKILL)
        after = wait_until(
            lambda: len(found := listeners(child, caller.port)) == 2 and before[0] not in found and found
        )
        assert before[1] in after
        assert [caller.get("/healthz").status for _ in range(20)] == [200] * 20


@pytest.mark.parametrize("hard", [4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]])
def test_a_web_process_takes_all_open_files_that_it_may(
    process_environment: dict[str, str], tmp_path: Path, hard: int
) -> None:
    """The control is the limit of this machine, which often is high enough: then nobody is warned."""
    before = ["sh", "-c", f'ulimit -Sn 1024 && ulimit -Hn {hard if hard >= 0 else "unlimited"} && exec "$@"', "sh"]
    allowed = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    with web_processes(process_environment, tmp_path, workers=1, before=before) as (_, child):
        assert psutil.Process(child.pid).rlimit(psutil.RLIMIT_NOFILE) == (allowed, hard)
        assert ("few_open_files" in child.log_end()) == (allowed < MAX_CONNECTIONS)
