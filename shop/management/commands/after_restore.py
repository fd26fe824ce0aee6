"""manage.py after_restore [--bring-back] [--json]: pauses every sale of a database that was restored from a backup, and
names what it has lost, and the mails that would be sent a second time; with --bring-back it first brings back what is
safe. Never resumes a sale, never guesses, never sends. Exit code 1 when a person has to decide.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from inventory.exceptions import FairdropError
from shop.payments.losses import Loss
from shop.staff.restore.run import after_restore
from shop.staff.restore.traces import Mails, find_mails


class Command(BaseCommand):
    help = "Pause every sale, and name what outlived the restored database: orders, buyers, charges, places."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--bring-back", action="store_true", help="write orders and payments that are safe to write"
        )
        parser.add_argument(
            "--charges-since-days",
            type=int,
            default=3,
            metavar="DAYS",
            help="ask providers for charges begun since then",
        )
        parser.add_argument("--json", action="store_true", help="print as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        since = timezone.now() - timedelta(days=options["charges_since_days"])
        try:
            paused, losses = after_restore(charges_since=since, brings_back=options["bring_back"])
        except FairdropError as error:
            raise CommandError(error.detail) from error
        write = as_json if options["json"] else as_text
        self.stdout.write(write(losses, paused=paused, mails=find_mails()))
        if losses:
            raise CommandError("somebody has to decide: start no worker yet")


def units_twice(losses: Sequence[Loss]) -> dict[str, int]:
    """Return how many units of each SKU would be sold a second time."""
    found: Counter[str] = Counter()
    for loss in losses:
        found[loss.sku] += loss.units
    return {sku: units for sku, units in found.items() if units}


def as_json(losses: Sequence[Loss], *, paused: Sequence[str], mails: Mails) -> str:
    """Return the losses as one JSON object; paused: the sales that wait for somebody to resume them."""
    rows = [loss._asdict() for loss in losses]
    twice = units_twice(losses)
    found = {"ok": not rows, "paused": paused, "units_sold_twice": twice, "losses": rows, "mails": mails._asdict()}
    return json.dumps(found, indent=2)


def as_text(losses: Sequence[Loss], *, paused: Sequence[str], mails: Mails) -> str:
    """Return the losses as a table for people."""
    rows = [("kind", "sku", "name", "buyer", "units", "detail"), *(tuple(map(str, loss)) for loss in losses)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]) for row in rows
    ]
    lines += [f"{sku}: {units} units would be sold a second time" for sku, units in units_twice(losses).items()]
    lines = lines if losses else ["nothing is missing that Redis or a provider knows"]
    if any(mails):
        lines.append(
            f"mails: {len(mails.waiting)} that waited in the backup and {len(mails.news)} with news will be sent; "
            "those that were sent since are sent twice (--json names their requests)"
        )
    return "\n".join([*lines, *(f"paused until `manage.py sale resume {slug}`" for slug in paused)])
