"""manage.py after_restore [--json]: names what a restored database has lost, before anything sells again.
Changes nothing. Exit code 1 when a person has to decide.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory.exceptions import FairdropError
from shop.payments.losses import Loss, find_losses


class Command(BaseCommand):
    help = "Name each order, buyer and charge that Redis or a provider knows and the restored database does not."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            losses = find_losses()
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(as_json(losses) if options["json"] else as_text(losses))
        if losses:
            raise CommandError("somebody has to decide: start no worker yet")


def units_twice(losses: Sequence[Loss]) -> dict[str, int]:
    """Return how many units of each SKU would be sold a second time."""
    found: Counter[str] = Counter()
    for loss in losses:
        found[loss.sku] += loss.units
    return {sku: units for sku, units in found.items() if units}


def as_json(losses: Sequence[Loss]) -> str:
    """Return the losses as one JSON object."""
    rows = [loss._asdict() for loss in losses]
    return json.dumps({"ok": not rows, "units_sold_twice": units_twice(losses), "losses": rows}, indent=2)


def as_text(losses: Sequence[Loss]) -> str:
    """Return the losses as a table for people."""
    rows = [("kind", "sku", "name", "buyer", "units", "detail"), *(tuple(map(str, loss)) for loss in losses)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]) for row in rows
    ]
    lines += [f"{sku}: {units} units would be sold a second time" for sku, units in units_twice(losses).items()]
    return "\n".join(lines) if losses else "nothing is missing that Redis or a provider knows"
