"""manage.py seed_demo WHICH: makes the demo's goods and sales. Holds no logic."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory.exceptions import FairdropError
from workers.demo.data import FLOOD, seed, seed_again, seed_shop


class Command(BaseCommand):
    help = "Make the demo's goods: the three sales that are flooded, the shop to look at, or both; or fresh ones again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("which", nargs="?", choices=["flood", "shop", "all", "again"], default="all")
        parser.add_argument("--opens-in-seconds", type=int, default=60, help="when the next sale opens (default: 60)")
        parser.add_argument(
            "--sales", type=int, choices=range(1, len(FLOOD) + 1), default=len(FLOOD), help="how many (again)"
        )
        parser.add_argument("--units", type=int, default=100, help="units of each (again; default: 100)")

    def handle(self, *args: Any, **options: Any) -> None:
        slugs: list[str] = []
        try:
            if options["which"] in ("flood", "all"):
                slugs += seed(FLOOD)
            if options["which"] == "again":
                slugs += seed_again(sales=options["sales"], units=options["units"])
            if options["which"] in ("shop", "all"):
                slugs += seed_shop(opens_in_seconds=options["opens_in_seconds"])
        except FairdropError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("made " + ", ".join(slugs))
