"""Starts real processes of the shop for a test: the web process on a free port, settlers, a command of manage.py.
Never leaves one behind: each is a context manager that ends its whole process group.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.http_calls import Caller
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import free_port

ROOT = Path(__file__).resolve().parents[3]
COMMAND_SECONDS = 900.0
STOP_SECONDS = 60.0
# The workers of a shop that decides and takes payments.
SELLING = ("settler", "expirer", "payments", "sandbox")
# Serves, and takes no store or receiver for one that is away because the machine, or a test, stopped it for a moment.
# A test may stop it in the middle of a transaction, whose locks others wait for. Nor does it take for a slow sender a
# test whose thread gets no turn for seconds.
PATIENT_WEB = """
from tests.support.waiting import lengthen_bounds
lengthen_bounds(idle_seconds=30)
import shop.gate.readiness, shop.gate.sales.cache
import shop.gate.server.protocol as protocol, shop.gate.server.silent as silent
from shop.sandbox import deliveries
shop.gate.readiness.ANSWER_SECONDS = shop.gate.sales.cache.LOAD_SECONDS = deliveries.POST_SECONDS = 60
deliveries.LEASE_SECONDS = 2 * deliveries.BATCH * deliveries.POST_SECONDS
protocol.DEADLINES = silent.DEADLINES = (600, 600, 600, *protocol.DEADLINES[3:])
"""
# Looks for new sales four times as often as the shop does, for tests that each make one and wait until it is shown. Not
# for floods and restarts: what the shop learns from the catalogue, it mends by, too.
HASTY_WEB = f"{PATIENT_WEB}shop.gate.sales.cache.CATALOGUE_SECONDS = 0.25\n"


def program_with(lines: str) -> list[str]:
    """Return what Python runs instead of manage.py: the same, after `lines` have changed the shop."""
    start = 'sys.argv[0] = "manage.py"\nrunpy.run_path("manage.py", run_name="__main__")'
    return ["-c", f"import runpy, sys\nimport shop.wsgi\n{lines}\n{start}"]


@contextmanager
def web_process(
    environment: Mapping[str, str], *, folder: Path, program: Sequence[str] = ("manage.py",)
) -> Iterator[Caller]:
    """Run the web process with its log in `folder`; give its caller as soon as it serves.

    program: what Python runs instead of manage.py, see program_with().
    """
    with web_child(environment, folder=folder, program=program) as (_, caller):
        yield caller


@contextmanager
def web_child(
    environment: Mapping[str, str], *, folder: Path, program: Sequence[str] = ("manage.py",)
) -> Iterator[tuple[ChildProcess, Caller]]:
    """As web_process, for those who also need the process itself."""
    port = free_port()
    command = [sys.executable, *program, "run_web", "--port", str(port)]
    with running_process("web", command, environment=environment, folder=folder) as child:
        caller = Caller(port)
        wait_until(lambda: _serves(caller, child), what="the web process serves")
        yield child, caller


@contextmanager
def settler_process(environment: Mapping[str, str], *, folder: Path, name: str = "settler") -> Iterator[ChildProcess]:
    """Run a settler with its log in `folder`."""
    command = [sys.executable, "manage.py", "run_worker", "settler"]
    with running_process(name, command, environment=environment, folder=folder) as child:
        yield child


@contextmanager
def shop_process(
    environment: Mapping[str, str], *, folder: Path, workers: Sequence[str] = SELLING, web: str = PATIENT_WEB
) -> Iterator[Caller]:
    """Run a web process and `workers`, one of each kind named, with their logs in `folder`; give the shop's caller.

    web: what the web process changes before it starts.
    """
    with ExitStack() as running:
        for number, worker in enumerate(workers):
            command = [sys.executable, "manage.py", "run_worker", worker]
            name = f"{worker}-{number}"
            running.enter_context(running_process(name, command, environment=environment, folder=folder))
        yield running.enter_context(web_process(environment, folder=folder, program=program_with(web)))


def run_manage(*arguments: str, environment: Mapping[str, str], code: Path = ROOT) -> None:
    """Run a command of manage.py to its end; fail with its output when it fails. code: where another version lies."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=code, env=dict(environment), capture_output=True, text=True,
        timeout=COMMAND_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def migrate(*target: str, environment: Mapping[str, str]) -> None:
    """Make the tables of a database that no buyer uses, however long each step takes. target: as `migrate` has it."""
    unbounded = ("--statement-seconds", "0", "--lock-seconds", "60")
    run_manage("migrate", *target, *unbounded, "--verbosity", "0", environment=environment)


@contextmanager
def running_process(
    name: str,
    command: list[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    stop_seconds: float = STOP_SECONDS,
    code: Path = ROOT,
) -> Iterator[ChildProcess]:
    """Run `command` with its log in `folder`; it has stop_seconds to end. code: where another version lies."""
    child = ChildProcess(
        name=name,
        arguments=command,
        environment=environment,
        folder=code,
        log_path=folder / f"{name}.log",
        stop_timeout_seconds=stop_seconds,
    )
    try:
        yield child.start()
    finally:
        child.stop()


def _serves(caller: Caller, child: ChildProcess) -> bool:
    assert child.running, child.log_path and child.log_path.read_text()
    try:
        return caller.get("/healthz", timeout_seconds=1).status == 200
    except OSError:
        return False
