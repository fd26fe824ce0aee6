"""`manage.py run_web`: serves the shop until a signal ends it; with --workers in so many processes on one port.
Never leaves a process behind, and starts again what died.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand

from inventory.telemetry.page import next_address
from workers.embedded.child_process import ChildProcess
from workers.embedded.supervisor import Supervisor
from workers.process_loop import StopFlag

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.1
STOP_SECONDS = 12.0


class Command(BaseCommand):
    """The command."""

    help = "Serve the shop: its API, its pages and its live events."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say where, and in how many processes."""
        parser.add_argument("--host", default="127.0.0.1", help="the address to listen at, for your proxy alone")
        parser.add_argument("--port", type=int, default=8000, help="the port, one for all processes of --workers")
        parser.add_argument("--workers", type=int, default=1, help="how many processes, about one a core")
        parser.add_argument("--shared", action="store_true", help="let other processes listen on the same port")
        parser.add_argument(
            "--drain", type=float, default=0.0, metavar="SECONDS",
            help="when asked to stop, say so at /readyz and serve on for so long, each connection once",
        )  # fmt: skip

    def handle(self, *_: Any, host: str, port: int, workers: int, shared: bool, drain: float, **_options: Any) -> None:
        """Serve."""
        from workers.management.commands.run_worker import refuse_missing_keys, refuse_wrong_settings

        refuse_missing_keys()
        refuse_wrong_settings()
        if workers > 1:  # each of them refuses, too; but what refuses at its start would be started again for ever
            arguments = ["--host", host, "--port", str(port), "--shared", "--drain", str(drain)]
            return supervise(workers, arguments=arguments, stop_seconds=drain + STOP_SECONDS)
        from shop.asgi import application
        from shop.gate.server.server import serve

        return serve(application, host=host, port=port, shared=shared, drain_seconds=drain)


def supervise(workers: int, *, arguments: list[str], stop_seconds: float) -> None:
    """Run so many processes of this command until a signal ends them."""
    stop = StopFlag()
    stop.install()
    # As this one was started: by manage.py, as a module, or by the wheel's command.
    program = sys.orig_argv[: sys.orig_argv.index("run_web")]
    supervisor = Supervisor(report=lambda text: log.warning(text, action="process_restarted"))
    try:
        for number in range(1, workers + 1):
            command = [*program, "run_web", *arguments]
            # They share the shop's port, so a scrape of it finds now one and now another: each has one of its own.
            own = {"FAIRDROP_METRICS_ADDRESS": next_address(settings.METRICS_ADDRESS, number - 1)}
            child = ChildProcess(
                name=f"web {number}",
                arguments=command,
                environment={**os.environ, **own},
                stop_timeout_seconds=stop_seconds,
            )
            supervisor.add(child, stage=0)
        while not stop.is_set():
            supervisor.restart_the_dead()
            stop.wait(LOOK_SECONDS)
    finally:
        supervisor.stop_all()
