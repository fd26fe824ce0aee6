"""manage.py audit [SLUG …] [--json]: checks every invariant of the sales named, or of all. Never repairs anything.
Exit code 0 only if all of them hold. Called by people and by make.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory.exceptions import FairdropError
from shop.audits import audit_sale
from shop.models import Sale


class Command(BaseCommand):
    help = "Check every invariant of the sales named (default: all); exit code 1 when one does not hold."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slugs", nargs="*", metavar="SLUG", help="sales to audit; all when none is named")
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, slugs: list[str], json: bool, **options: Any) -> None:
        names = slugs or list(Sale.objects.order_by("slug").values_list("slug", flat=True))
        try:
            reports = {slug: audit_sale(slug) for slug in names}
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(as_json(reports) if json else as_text(reports))
        broken = [slug for slug, report in reports.items() if not report["ok"]]
        if broken:
            raise CommandError(f"broken: {', '.join(broken)}")


def as_json(reports: dict[str, dict[str, Any]]) -> str:
    """Return the reports as one JSON object, by slug."""
    return json.dumps(reports, indent=2)


def as_text(reports: dict[str, dict[str, Any]]) -> str:
    """Return the reports as lines for people: each sale, its counts, and each invariant with its light."""
    lines = []
    for slug, report in reports.items():
        counts = "  ".join(f"{name} {value:,}" for name, value in report["counts"].items())
        lines.append(f"{'✓' if report['ok'] else '✗'} {slug}  {counts}")
        for finding in report["invariants"]:
            light = "✓" if finding["ok"] else f"✗ {finding['detail']}:"
            lines.append(f"    {finding['id']:<4} {light} {finding['name']}")
    return "\n".join(lines)
