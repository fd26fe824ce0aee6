"""manage.py run_worker NAME: runs one worker process until SIGTERM. Holds no logic of its own. Called by people, make
and the supervisor. Exit code 0 after an orderly stop.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from inventory import redis
from inventory.memory import settle_in
from inventory.wakeups import WakeUps
from workers.process_loop import StopFlag, run_until_stopped
from workers.settler import Settler

# The sweep: how soon work is found when its hint was lost, or its holder died.
SWEEP_SECONDS = 0.5


def run_settler() -> None:
    """Settle until stopped."""
    stop = StopFlag()
    stop.install()
    client = redis.connect(timeout_seconds=2)
    wakeups = WakeUps(client)
    settler = Settler(client, batch=settings.SETTLE_BATCH, lock_ttl_ms=settings.LOCK_TTL_MS, stopping=stop.is_set)
    try:
        run_until_stopped(settler.work_once, stop=stop, wait_for_work=lambda: void(wakeups.wait(seconds=SWEEP_SECONDS)))
    finally:
        settler.close()


def void(_value: object) -> None:
    """Take a value and do nothing with it."""


WORKERS = {"settler": run_settler}


class Command(BaseCommand):
    help = "Run one worker process until SIGTERM: " + ", ".join(sorted(WORKERS))

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", choices=sorted(WORKERS))

    def handle(self, *args: Any, **options: Any) -> None:
        self.stderr.write(f"{options['name']} started")
        settle_in()
        WORKERS[options["name"]]()
        self.stderr.write(f"{options['name']} stopped")
