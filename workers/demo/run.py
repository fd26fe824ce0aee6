"""Runs the whole shop on this machine: servers, migrations, goods, web, workers, a flood, then a shop to look at.
Never leaves a process behind, never keeps data of an earlier run.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from django.conf import settings

from inventory.exceptions import FairdropError
from inventory.telemetry.page import next_address
from shop.gate.server.server import raise_open_files
from workers.demo.data import FLOOD_HOLD_SECONDS
from workers.demo.editions import PREFIX
from workers.demo.guard import only_one, refuse_busy_port
from workers.demo.steps import Interrupted, run_step, say, step, wait_for_web
from workers.embedded.child_process import ChildProcess
from workers.embedded.private_files import write_private
from workers.embedded.server import Server
from workers.embedded.stores import start_postgres, start_valkey
from workers.embedded.supervisor import Supervisor
from workers.process_loop import StopFlag

# As manage.py, which an installed wheel does not have.
MANAGE = ("-m", "workers")
# Each is a name of `manage.py run_worker`, and how many of it run.
WORKERS = {"settler": 2, "expirer": 1, "payments": 1, "reconciler": 1, "sandbox": 1, "mailer": 1, "notary": 1}
BUYERS = 3_000
ATTEMPTS = 20_000
FLOOD_SALES = "lantern-drop,teapot-drop,sneaker-drop"
OPENS_IN_SECONDS = 60
# How many simulated people come to each of the sales that open every two minutes.
CROWD = 40
MAX_CROWD = 1_000
INTERRUPTED_CODE = 130
WATCH_SECONDS = 0.2
# What is stopped first; together with the children's timeouts everything ends within 10 s.
CROWD_STAGE, WEB_STAGE, WORKER_STAGE, VALKEY_STAGE, POSTGRES_STAGE = range(5)
CROWD_STOP_SECONDS = 0.5
WEB_STOP_SECONDS = WORKER_STOP_SECONDS = 2.5
VALKEY_STOP_SECONDS = POSTGRES_STOP_SECONDS = 2.0


@dataclass(kw_only=True)
class Demo:
    """One run. Everything it starts is in `supervisor` or ended by the step that started it."""

    base_dir: Path
    state_dir: Path
    port: int
    serve: bool
    buyers: int = BUYERS
    # 0: no flood, the shop opens at once.
    attempts: int = ATTEMPTS
    crowd: int = CROWD
    stop: StopFlag = field(default_factory=StopFlag)
    supervisor: Supervisor = field(default_factory=lambda: Supervisor(report=say))
    environment: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def folder(self) -> Path:
        """Where the servers' data and every log of this run are."""
        return self.state_dir / "demo"

    @property
    def url(self) -> str:
        """The shop's address."""
        return f"http://127.0.0.1:{self.port}"

    def run(self) -> int:
        """Run to the end and return the exit code: the flood's verdict, 1 when refused, 130 when interrupted."""
        _listen(self.stop)
        try:
            with only_one(self.state_dir / "demo.lock"):
                refuse_busy_port(self.port)
                try:
                    return self._run_alone()
                finally:
                    self._end()
        except Interrupted:
            return INTERRUPTED_CODE
        except FairdropError as error:
            print(error, file=sys.stderr, flush=True)
            return 1

    def _run_alone(self) -> int:
        say(f"Fairdrop demo: everything runs on this machine, its data is in {self.folder}")
        raise_open_files()  # also for the crowd, which inherits it
        self.environment = _own_environment(self.state_dir)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700, parents=True)
        self._start_servers()
        self._prepare()
        self._start_processes()
        verdict = self._flood() if self.attempts else 0
        if self.serve:
            self._serve()
        return verdict

    def _start_servers(self) -> None:
        with step("PostgreSQL"):
            postgres = _server_of(self.environment, "DATABASE_URL") or start_postgres(self.folder)
            self._watch_server(postgres, stage=POSTGRES_STAGE, stop_seconds=POSTGRES_STOP_SECONDS)
        with step("Valkey, every write on disk"):
            valkey = _server_of(self.environment, "REDIS_URL") or start_valkey(self.folder)
            self._watch_server(valkey, stage=VALKEY_STAGE, stop_seconds=VALKEY_STOP_SECONDS)
        # A run begins with empty stores: a browser that kept what another one signed brings no place of it in here.
        made = {name: secrets.token_urlsafe(32) for name in ("FAIRDROP_TOKEN_KEYS", "FAIRDROP_AUDIT_TOKEN")}
        own = {"DATABASE_URL": postgres.url, "REDIS_URL": valkey.url, **made}
        self.environment |= own
        write_private(self.state_dir / "demo.env", text="".join(f"{name}={value}\n" for name, value in own.items()))

    def _watch_server(self, server: Server, *, stage: int, stop_seconds: float) -> None:
        if server.child is not None:
            server.child.stop_timeout_seconds = stop_seconds
            self.supervisor.add(server.child, stage=stage)

    def _prepare(self) -> None:
        with step("tables"):
            self._manage("migrate", "--verbosity", "1", "--statement-seconds", "0")  # nobody waits for a table yet
        with step("goods, and three sales of 100 units"):
            self._manage("seed_demo", "flood")

    def _start_processes(self) -> None:
        for worker, many in WORKERS.items():
            for number in range(1, many + 1):
                self.supervisor.add(self._worker(worker, number), stage=WORKER_STAGE)
        with step("web"):
            web = self.supervisor.add(self._web(), stage=WEB_STAGE)
            wait_for_web(web, port=self.port, stopping=self.stop.is_set)

    def _worker(self, worker: str, number: int) -> ChildProcess:
        command = [*MANAGE, "run_worker", worker]
        return self._watched_child(f"{worker}-{number}", command, stop_timeout_seconds=WORKER_STOP_SECONDS)

    def _web(self) -> ChildProcess:
        command = [*MANAGE, "run_web", "--port", str(self.port)]
        return self._watched_child("web", command, stop_timeout_seconds=WEB_STOP_SECONDS)

    def _watched_child(self, name: str, arguments: list[str], *, stop_timeout_seconds: float) -> ChildProcess:
        """Return a child that shows what it counts: each at the next port, as all share one setting."""
        child = self._child(name, arguments, stop_timeout_seconds=stop_timeout_seconds)
        address = next_address(settings.METRICS_ADDRESS, next(self._numbers))
        child.environment = {**self.environment, "FAIRDROP_METRICS_ADDRESS": address}
        return child

    def _child(self, name: str, arguments: list[str], *, stop_timeout_seconds: float) -> ChildProcess:
        return ChildProcess(
            name=name,
            arguments=[sys.executable, *arguments],
            environment=self.environment,
            folder=self.base_dir,
            log_path=self.folder / f"{name}.log",
            stop_timeout_seconds=stop_timeout_seconds,
        )

    def _flood(self) -> int:
        """Send the crowd, its output to our terminal, and return its verdict: 0 when every invariant holds."""
        say(f"\n{self.buyers:,} buyers come for 300 units: {self.attempts:,} attempts, 30 % of them repeats.")
        people = "Of ten holders six pay, two never do, one cancels, one pays too late."
        say(f"A unit is held for {FLOOD_HOLD_SECONDS} seconds. {people}\n")
        flood = ["-m", "loadtest.run_flood", "--host", self.url, "--sales", FLOOD_SALES]
        # The audit token is in the child's environment: on a command line every user of the machine could read it.
        flood += ["--buyers", str(self.buyers), "--attempts", str(self.attempts)]
        flood += ["--history", str(self.state_dir / "flood")]
        child = self._child("flood", flood, stop_timeout_seconds=2.0)
        child.log_path = None
        child.start()
        try:
            while not child.wait(timeout_seconds=WATCH_SECONDS, until=self.stop.is_set):
                if self.stop.is_set():
                    raise Interrupted
                self.supervisor.restart_the_dead()
        finally:
            child.stop()
        return child.exit_code or 0

    def _serve(self) -> None:
        """Open the rest of the shop and watch the children until Ctrl-C."""
        password = secrets.token_urlsafe(12)
        say()
        with step("the rest of the shop"):
            self._manage("seed_demo", "shop", "--opens-in-seconds", str(OPENS_IN_SECONDS))
            self._manage(
                "createsuperuser", "--noinput", "--username", "admin", "--email", "admin@localhost",
                extra={"DJANGO_SUPERUSER_PASSWORD": password},
            )  # fmt: skip
        self._start_life()
        say(
            f"\n  Shop   {self.url}/   a new edition goes on sale every two minutes; {self.crowd} simulated people come"
        )
        say(f"  Admin  {self.url}/admin/   user admin, password {password} (made for this run)")
        say(f"  Mails  {self.url}/mailbox/   sent to nobody, to be read here")
        say("\n  Ctrl-C ends everything.")
        while not self.stop.wait(WATCH_SECONDS):
            self.supervisor.restart_the_dead()

    def _start_life(self) -> None:
        """Let an edition go on sale every two minutes, and people come to it."""
        editions = self._child("editions", [*MANAGE, "demo_editions"], stop_timeout_seconds=WORKER_STOP_SECONDS)
        self.supervisor.add(editions, stage=WORKER_STAGE)
        if self.crowd:
            words = ["-m", "loadtest.visitors", "--host", self.url, "--people", str(self.crowd)]
            words += ["--prefix", PREFIX]
            self.supervisor.add(self._child("crowd", words, stop_timeout_seconds=CROWD_STOP_SECONDS), stage=CROWD_STAGE)

    def _manage(self, command: str, *arguments: str, extra: Mapping[str, str] | None = None) -> None:
        run_step(
            [sys.executable, *MANAGE, command, *arguments],
            folder=self.base_dir,
            environment={**self.environment, **(extra or {})},
            log_path=self.folder / f"{command}.log",
            stopping=self.stop.is_set,
        )

    def _end(self) -> None:
        if self.stop.is_set():
            say("\nEnding web, workers, Valkey and PostgreSQL …")
        self.supervisor.stop_all()
        (self.state_dir / "demo.env").unlink(missing_ok=True)


def _server_of(environment: Mapping[str, str], variable: str) -> Server | None:
    """Return the server that the environment names, if it does."""
    url = environment.get(variable)
    return Server(url=url) if url else None


def _listen(stop: StopFlag) -> None:
    """Set `stop` on Ctrl-C, SIGTERM, and a closed terminal (unless nohup asked to outlive it)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())


def _own_environment(state_dir: Path) -> dict[str, str]:
    """Return the environment of every child: ours, without the addresses that a killed demo left in demo.env."""
    # settings.py has read that file into our environment when this process started.
    leftover = state_dir / "demo.env"
    lines = leftover.read_text().splitlines() if leftover.exists() else []
    old = dict(line.split("=", 1) for line in lines if "=" in line)
    kept = {name: value for name, value in os.environ.items() if old.get(name) != value}
    leftover.unlink(missing_ok=True)
    return kept | {
        "FAIRDROP_STATE_DIR": str(state_dir),
        "FAIRDROP_ENV": "development",
        "FAIRDROP_BEHIND_TLS": "0",
        # The simulated people say themselves from where they come, as if a proxy of ours did.
        "FAIRDROP_TRUSTED_PROXIES": "127.0.0.0/8",
        # An edition every two minutes: a day of them would fill the list.
        "FAIRDROP_RETIRE_AFTER_SECONDS": "900",
        "PYTHONUNBUFFERED": "1",
    }
