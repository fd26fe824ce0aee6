"""Checks every invariant of a sale against the database, in one snapshot, and the line. Never repairs anything.
There is no second implementation of these checks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection, transaction

from inventory import redis
from inventory.audit import line as audit_line
from inventory.audit import records
from inventory.audit.finding import Finding
from inventory.audit.queries import QUERIES, SALES, statement
from inventory.line.snapshot import LineLook
from inventory.postgres import Cursor

HOLD_GRACE_SECONDS = 5  # the expirer's rounds, and a busy moment
REFUND_GRACE_SECONDS = 60
# A provider ends a charge that nobody paid; until then each question comes when the payment's age has doubled.
ANSWER_GRACE_SECONDS = 5 * 86_400
# A holder that died keeps the lock for its life; then another must have taken over. A line that a lost message left
# asleep is probed within ten seconds.
TAKE_OVER_MS = 15_000
# Triggers that must be on, by table; rows of a sealed table the program's own role may not change.
GUARDS = (
    ("inventory_stockmovement", "movement_rows_never_change"),
    ("inventory_stockmovement", "movement_table_never_emptied"),
)
SEALED = ("inventory_stockmovement",)
# Never compiled, because that takes longer than the query; never spilled to disk; never row by row, because the
# planner's statistics of a sale that is being flooded are always old. It keeps no row from anybody, so it may take
# longer than other statements: a sale with 700,000 orders takes more than their 15 s on a slow machine.
PLANNING = (
    "SET LOCAL jit = off; SET LOCAL work_mem = '64MB'; SET LOCAL enable_nestloop = off; "
    "SET LOCAL statement_timeout = '2min'"
)
RETIRED_NOTE = "This sale is retired and Redis has forgotten it: only the invariants of the database were checked."
BEHIND_THE_COUNTS = (
    "version",
    "decided_in_order",
    "ordinal_base",
    "decided_ms_ago",
    "changed_ms_ago",
    "freed_ms_ago",
)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is audited: one sale of one stock row. guards, sealed: what must be in place alongside the ledger's own.

    retired: Redis has forgotten the sale, so only the database is looked at.
    """

    sku: str
    stock_id: int
    sale_id: int
    guards: tuple[tuple[str, str], ...] = ()
    sealed: tuple[str, ...] = ()
    retired: bool = False


class Books(NamedTuple):
    """What the database says in one snapshot: findings, and counts (units, requests; ages in ms, None: never)."""

    findings: list[Finding]
    counts: dict[str, int | None]


def audit(scope: Scope, *, thorough: bool = False) -> dict[str, Any]:
    """Return {ok, invariants: [{id, name, ok, detail}], counts} of one sale. Raises RedisUnavailable.

    The line is looked at before and after the database: what was settled in between is then in one of them (I4).
    thorough: compare every record of Redis with its order, which takes seconds when they are many; else some in turn.
    A retired sale has a `note` as well, and the invariants of the database alone.
    """
    if scope.retired:
        return _audit_books(scope)
    client = redis.connect()
    before = audit_line.look(client, scope.sku, sale_id=scope.sale_id)
    sample = records.read_sample(client, scope.sku, records=before.records, whole=thorough)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        orders = records.read_orders(cursor, stock_id=scope.stock_id, sample=sample)
        books = read_books(cursor, scope)
    after = audit_line.look(client, scope.sku, sale_id=scope.sale_id)
    patience_ms = settings.LOCK_TTL_MS + TAKE_OVER_MS
    first = audit_line.first_waits(scope.sku, after, books.counts, patience_ms=patience_ms)
    findings = [
        *books.findings,
        *audit_line.line_findings(before, books.counts, after, first_waits=first),
        *records.record_findings(sample, orders, line=before, books=books.counts),
    ]
    return _report(findings, _counts(books, after))


def _audit_books(scope: Scope) -> dict[str, Any]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        books = read_books(cursor, scope)
    return _report(books.findings, _of_sale(books)) | {"note": RETIRED_NOTE}


def _report(findings: list[Finding], counts: dict[str, int | None]) -> dict[str, Any]:
    return {
        "ok": all(finding.ok for finding in findings),
        "invariants": [asdict(finding) for finding in sorted(findings, key=lambda each: each.place)],
        "counts": counts,
    }


def read_books(cursor: Cursor, scope: Scope) -> Books:
    """Run every query of the database in the caller's transaction, as one statement behind the SKU's sales."""
    guards = (*GUARDS, *scope.guards)
    cursor.execute(SALES, {"stock_id": scope.stock_id})
    values = {
        "stock_id": scope.stock_id,
        "sale_ids": [sale_id for (sale_id,) in cursor.fetchall()],
        "sale_id": scope.sale_id,
        "hold_grace": HOLD_GRACE_SECONDS,
        "refund_grace": REFUND_GRACE_SECONDS,
        "answer_grace": ANSWER_GRACE_SECONDS,
        "places": [place for place, _ in guards],
        "guards": [guard for _, guard in guards],
        "sealed": [*SEALED, *scope.sealed],
    }
    cursor.execute(PLANNING)
    cursor.execute(statement(), values)
    row = dict(zip((column[0] for column in cursor.description), cursor.fetchone(), strict=True))
    texts = {number: row.pop(number) for number, _, _ in QUERIES}
    findings = [Finding(number, name, texts[number] is None, texts[number] or "") for number, name, _ in QUERIES]
    return Books(findings, {name: None if value is None else int(value) for name, value in row.items()})


def _counts(books: Books, line: LineLook) -> dict[str, int | None]:
    return _of_sale(books) | {
        "queued": line.queued,
        "waiting": line.waiting,
        "waitlisted": line.waitlisted,
        "in_flight": line.in_flight,
        "admitted": line.admitted + (books.counts["decided"] or 0) - (books.counts["decided_in_order"] or 0),
        "dead_letters": line.dead_letters,
    }


def _of_sale(books: Books) -> dict[str, int | None]:
    return {name: value for name, value in books.counts.items() if name not in BEHIND_THE_COUNTS}
