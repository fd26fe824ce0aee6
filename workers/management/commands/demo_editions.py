"""manage.py demo_editions: a sale every two minutes, until SIGTERM. Holds no logic."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from inventory import redis
from workers.demo.editions import Editions
from workers.process_loop import StopFlag, run_until_stopped

PAUSE_SECONDS = 0.25


class Command(BaseCommand):
    help = "Put an edition on sale every two minutes until SIGTERM: for the demo only."

    def handle(self, *args: Any, **options: Any) -> None:
        stop = StopFlag()
        stop.install()
        editions = Editions(redis.connect(timeout_seconds=2), lock_ttl_ms=settings.LOCK_TTL_MS)
        try:
            run_until_stopped(editions.work_once, stop=stop, wait_for_work=lambda: stop.wait(PAUSE_SECONDS))
        finally:
            editions.close()
