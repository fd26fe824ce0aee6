"""manage.py locks [NAME …] [--json] [--force NAME]: who holds which lock since when, who waits, how locks were used.
Changes nothing unless forced.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory.exceptions import FairdropError
from inventory.line.forgetting import skus_known
from inventory.locks.lock import force_release
from inventory.locks.report import LockReport, report_locks
from inventory.locks.statistics import read_statistics
from inventory.locks.token import Owner, owner_of
from inventory.redis import Client, connect

# How each lock was used, by its name.
Used = dict[str, dict[str, int]]
COUNTERS = ("attempts", "contended", "timeouts", "losses", "failed_renewals", "waiters_max")


class Command(BaseCommand):
    help = "Show who holds which lock since when, who waits, and how locks were used; or take one away (--force)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help="locks to show; all that are known when none")
        parser.add_argument("--json", action="store_true", help="print the reports as JSON")
        parser.add_argument("--force", metavar="NAME", help="take this lock away from its holder; raises the fence")

    def handle(self, *args: Any, names: list[str], json: bool, force: str | None, **options: Any) -> None:
        client = connect()
        try:
            if force is not None:
                fence = take_away(client, force)
                self.stderr.write(f"{force} was taken away; its fence is now {fence}")
            reports = report_locks(client, names or sorted(skus_known(client)))
            used = {report.name: read_statistics(client, report.name) for report in reports}
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(as_json(reports, used) if json else as_text(reports, used))


def take_away(client: Client, name: str) -> int:
    """Take a lock from the holder it has now, and from no later one; return the raised fence. Raises CommandError."""
    (held,) = report_locks(client, [name])
    fence = force_release(client, name, token=held.token) if held.token else 0
    if not fence:
        raise CommandError(f"nobody holds {name}, or it went on to another holder; nothing was changed")
    return fence


def as_json(reports: list[LockReport], used: Used) -> str:
    """Return the reports as one JSON object, by name."""
    return json.dumps(
        {report.name: _as_dict(report) | {"statistics": used[report.name]} for report in reports}, indent=2
    )


def _as_dict(report: LockReport) -> dict[str, Any]:
    return {
        "state": report.state,
        "owner": report.owner._asdict() if report.owner else None,
        "token": report.token,
        "since_unix_seconds": report.since_unix_seconds,
        "left_ms": report.left_ms,
        "fence": report.fence,
        "waiters": list(report.waiters),
    }


def as_text(reports: list[LockReport], used: Used) -> str:
    """Return the reports as lines for people: each lock, its holder, its waiters, its counters and times."""
    return "\n".join(line for report in reports for line in _lines(report, used[report.name])) or "no lock is known"


def _lines(report: LockReport, numbers: dict[str, int]) -> list[str]:
    lines = [f"{report.name}  {report.state}  fence {report.fence}"]
    if report.since_unix_seconds is not None:
        since = datetime.fromtimestamp(report.since_unix_seconds, tz=UTC).isoformat(timespec="milliseconds")
        lines.append(f"    held since {since} by {_named(report.owner, report.token)}, {report.left_ms:,} ms left")
    lines += [f"    waits: {_named(owner_of(token), token)}" for token in report.waiters]
    if numbers:
        lines.append("    " + "  ".join(f"{name} {numbers.get(name, 0):,}" for name in COUNTERS))
        lines += [f"    {kind}: {_times(kind, numbers)}" for kind in ("waits", "holds") if numbers.get(kind)]
    return lines


def _named(owner: Owner | None, token: str | None) -> str:
    return f"{owner.host} process {owner.process_id} thread {owner.thread_id}" if owner else str(token)


def _times(kind: str, numbers: dict[str, int]) -> str:
    count, total, longest = numbers[kind], numbers.get(f"{kind}_us", 0), numbers.get(f"{kind}_max_us", 0)
    return f"{count:,}, mean {total / count / 1000:,.2f} ms, longest {longest / 1000:,.2f} ms"
