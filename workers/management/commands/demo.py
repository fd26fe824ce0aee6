"""manage.py demo: the whole shop on this machine, flooded and served. Holds no logic."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from workers.demo.run import ATTEMPTS, BUYERS, CROWD, MAX_CROWD, Demo


class Command(BaseCommand):
    help = "Start everything on this machine, flood three sales, print the verdict, then serve the shop until Ctrl-C."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-serve", action="store_true", help="end after the verdict, with its exit code")
        parser.add_argument(
            "--port", type=int, default=int(os.environ.get("PORT") or 8000), help="default: $PORT, 8000"
        )
        parser.add_argument("--buyers", type=int, default=BUYERS, help=f"how many flood it (default: {BUYERS})")
        parser.add_argument(
            "--attempts", type=int, default=ATTEMPTS, help=f"their attempts together (default: {ATTEMPTS}); 0: no flood"
        )

        parser.add_argument(
            "--crowd", type=int, default=CROWD, choices=range(MAX_CROWD + 1), metavar="PEOPLE",
            help=f"simulated people at each sale while the shop is served (default: {CROWD}, most: {MAX_CROWD})",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        demo = Demo(
            base_dir=settings.BASE_DIR,
            state_dir=settings.STATE_DIR,
            port=options["port"],
            serve=not options["no_serve"],
            buyers=options["buyers"],
            attempts=options["attempts"],
            crowd=options["crowd"],
        )
        sys.exit(demo.run())
