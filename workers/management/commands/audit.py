"""manage.py audit [SLUG …] [--sale SLUG] [--retired] [--json] [--thorough] [--watch]: checks every invariant of the
sales named, or of all that are not retired. Never repairs anything. Exit code 0 only if there is a sale and all hold.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, close_old_connections

from inventory.exceptions import FairdropError
from shop.models import Sale
from shop.sales.audit import audit_sale

Reports = dict[str, dict[str, Any]]
# Moves to the first line and clears the screen, so that the table is drawn in place.
CLEAR = "\x1b[H\x1b[J"


class Command(BaseCommand):
    help = "Check every invariant of the sales named (default: all not retired); exit code 1 when one does not hold."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slugs", nargs="*", metavar="SLUG", help="sales to audit (default: those not retired)")
        parser.add_argument("--sale", action="append", default=[], metavar="SLUG", help="a sale to audit")
        parser.add_argument("--retired", action="store_true", help="when none is named: audit the retired ones too")
        parser.add_argument("--json", action="store_true", help="print the findings as JSON; a line each with --watch")
        parser.add_argument(
            "--thorough", action="store_true", help="compare every record of Redis, not 2,000 at a time in turn"
        )
        parser.add_argument("--watch", action="store_true", help="look again and again until Ctrl-C")
        parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="how often (default: 1)")

    def handle(self, *args: Any, **options: Any) -> None:
        slugs = [*options["slugs"], *options["sale"]] or self.all_slugs(retired=options["retired"])
        if options["watch"]:
            broken = self.watch(
                slugs, as_lines=options["json"], thorough=options["thorough"], every_seconds=options["every"]
            )
        else:
            reports = look(slugs, thorough=options["thorough"])
            self.stdout.write(json.dumps(reports, indent=2) if options["json"] else as_text(reports))
            broken = [slug for slug, report in reports.items() if not report["ok"]]
        if broken:
            raise CommandError(f"broken: {', '.join(broken)}")

    def all_slugs(self, *, retired: bool) -> list[str]:
        """Return the sales to audit when none is named. Raises CommandError."""
        sales = dict(Sale.objects.order_by("slug").values_list("slug", "retired_at"))
        if not sales:  # the wrong database, or one that was not restored yet: nothing was proven
            raise CommandError("there is no sale to audit")
        slugs = [slug for slug, retired_at in sales.items() if retired or retired_at is None]
        if not slugs:
            self.stderr.write("every sale is retired; --retired audits them")
        return slugs

    def watch(self, slugs: list[str], *, as_lines: bool, thorough: bool, every_seconds: float) -> list[str]:
        """Show the findings again and again until Ctrl-C; return the sales that were ever broken.

        A store that is away ends only the first look. Raises CommandError.
        """
        seen: Counter[tuple[str, str]] = Counter()
        looks = unanswered = 0
        clear = CLEAR if not as_lines and self.stdout.isatty() else ""
        try:
            while True:
                began = time.monotonic()
                try:
                    reports = look(slugs, thorough=thorough)
                except CommandError as error:
                    if not looks:  # a wrong address, or a wrong name
                        raise
                    unanswered += 1
                    self.stderr.write(f"{error} (look without an answer: {unanswered:,})")
                else:
                    looks += 1
                    seen.update((slug, each["id"]) for slug, each in broken_findings(reports))
                    text = json.dumps(reports) if as_lines else as_text(reports, seen=seen, looks=looks)
                    self.stdout.write(clear + text)
                    self.stdout.flush()
                time.sleep(max(0.0, every_seconds - (time.monotonic() - began)))
        except KeyboardInterrupt:
            return sorted({slug for slug, _ in seen})


def look(slugs: list[str], *, thorough: bool) -> Reports:
    """Audit each sale once. Raises CommandError, also while a store is away."""
    try:
        return {slug: audit_sale(slug, thorough=thorough) for slug in slugs}
    except (FairdropError, Error) as error:
        close_old_connections()  # else the next look would go to one that is gone
        raise CommandError(str(error).strip()) from error


def broken_findings(reports: Reports) -> list[tuple[str, dict[str, Any]]]:
    """Return the slug and the finding of everything that does not hold."""
    return [(slug, each) for slug, report in reports.items() for each in report["invariants"] if not each["ok"]]


def as_text(reports: Reports, *, seen: Counter[tuple[str, str]] | None = None, looks: int = 1) -> str:
    """Return the reports as lines for people: each sale, its counts, and each invariant with its light.

    seen: how often each invariant of a sale was broken in `looks` looks.
    """
    lines = []
    for slug, report in reports.items():
        counts = "  ".join(f"{name} {value:,}" for name, value in report["counts"].items())
        lines.append(f"{'✓' if report['ok'] else '✗'} {slug}  {counts}")
        if "note" in report:
            lines.append(f"    {report['note']}")
        for finding in report["invariants"]:
            light = "✓" if finding["ok"] else f"✗ {finding['detail']}:"
            often = seen[slug, finding["id"]] if seen else 0
            times = f" (broken in {often:,} of {looks:,} looks)" if often else ""
            lines.append(f"    {finding['id']:<4} {light} {finding['name']}{times}")
    return "\n".join(lines)
