"""manage.py check_queues [--json]: checks the invariants of every SKU's line and every queue. Never repairs anything.
Exit code 1 on a finding, and when Redis knows nothing of the sales of the shop.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from inventory import redis
from inventory.exceptions import FairdropError
from inventory.line.reading import known_skus
from inventory.queues.checks import QueueFinding, check_line, check_queue, known_queues
from shop.models import Sale


class Command(BaseCommand):
    help = "Check the invariants of every line and queue; exit code 1 when one does not hold or all are lost."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            report = check_all()
        except FairdropError as error:
            raise CommandError(error.detail) from error
        if not report and has_sales():
            raise CommandError("Redis knows no line and no queue: nothing was checked")
        self.stdout.write(as_json(report) if options["json"] else as_text(report))
        broken = sum(len(findings) for findings in report.values())
        if broken:
            raise CommandError(f"{broken} invariants are broken")


def has_sales() -> bool:
    """Say whether a sale is not retired. Raises CommandError when the database cannot say so."""
    try:
        return Sale.objects.filter(retired_at__isnull=True).exists()
    except OperationalError as error:
        raise CommandError("Redis knows no line and no queue, and the database does not answer") from error


def check_all() -> dict[str, list[QueueFinding]]:
    """Return the findings of every line and queue, by "line NAME" or "queue NAME". Raises RedisUnavailable."""
    client = redis.connect()
    lines = {f"line {sku}": check_line(client, sku) for sku in known_skus(client)}
    return lines | {f"queue {name}": check_queue(client, name) for name in known_queues(client)}


def as_json(report: dict[str, list[QueueFinding]]) -> str:
    """Return the report as one JSON object."""
    findings = [finding._asdict() for each in report.values() for finding in each]
    return json.dumps({"ok": not findings, "checked": list(report), "findings": findings}, indent=2)


def as_text(report: dict[str, list[QueueFinding]]) -> str:
    """Return the report as lines for people."""
    lines = []
    for name, findings in report.items():
        lines.append(f"{'✗' if findings else '✓'} {name}")
        lines += [f"    {finding.rule}: {finding.detail}" for finding in findings]
    return "\n".join(lines) or "there is no line and no queue yet"
