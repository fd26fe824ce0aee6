"""Checks every invariant of a sale against the database, in one snapshot, and the line. Never repairs anything.
Called by the API, the load test's verdict, the admin and the tests: the one implementation (reliability §2).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection, transaction

from inventory import line, redis
from inventory.database import Cursor
from inventory.line import LineCheck


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one invariant: id as in the research (I1…), detail says what was seen."""

    id: str
    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What is audited: one sale of one stock row."""

    sku: str
    stock_id: int
    sale_id: int


# id, name, and a query whose rows are the violations. One row says enough; counting all would cost a scan.
QUERIES: tuple[tuple[str, str, str], ...] = (
    (
        "I1",
        "nothing is oversold",
        """SELECT 'held and sold ' || taken.units || ' of ' || s.total FROM inventory_stock s,
           LATERAL (SELECT coalesce(sum(quantity), 0) AS units FROM inventory_decision
                    WHERE stock_id = s.id AND state IN ('held', 'paid')) AS taken
           WHERE s.id = %(stock_id)s AND taken.units > s.total""",
    ),
    (
        "I2",
        "every unit is somewhere, and the ledger says the same",
        """SELECT 'available ' || s.available || ', held ' || s.held || ', sold ' || s.sold || ', total ' || s.total
                  || '; ledger says ' || m.available || ' available of ' || m.total
           FROM inventory_stock s, LATERAL (
               SELECT coalesce(sum(delta), 0) AS available,
                      coalesce(sum(delta) FILTER (WHERE kind IN ('load', 'adjust')), 0) AS total
               FROM inventory_stockmovement WHERE stock_id = s.id) AS m
           WHERE s.id = %(stock_id)s
             AND (s.available <> m.available OR s.total <> m.total OR s.available + s.held + s.sold <> s.total)""",
    ),
    (
        "I2b",
        "the counters say what the orders say",
        """SELECT 'held ' || s.held || ' but orders hold ' || d.held
                  || '; sold ' || s.sold || ' but orders paid ' || d.sold
           FROM inventory_stock s, LATERAL (
               SELECT coalesce(sum(quantity) FILTER (WHERE state = 'held'), 0) AS held,
                      coalesce(sum(quantity) FILTER (WHERE state = 'paid'), 0) AS sold
               FROM inventory_decision WHERE stock_id = s.id) AS d
           WHERE s.id = %(stock_id)s AND (s.held <> d.held OR s.sold <> d.sold)""",
    ),
    (
        "I3",
        "a request takes its units once",
        """SELECT request_id || ' moved ' || count(*) || ' times' FROM inventory_stockmovement
           WHERE stock_id = %(stock_id)s AND kind = 'hold' GROUP BY request_id HAVING count(*) > 1 LIMIT 1""",
    ),
    (
        "I5",
        "no unit moves without its request, and the other way round",
        """SELECT coalesce(d.request_id, m.request_id) || ': decided ' || coalesce(d.state, 'never') || ', moved '
                  || coalesce(m.delta, 0)
           FROM (SELECT * FROM inventory_decision WHERE stock_id = %(stock_id)s AND state IN ('held', 'paid')) d
           FULL JOIN (SELECT request_id, sum(delta) AS delta FROM inventory_stockmovement
                      WHERE stock_id = %(stock_id)s AND request_id IS NOT NULL
                      GROUP BY request_id HAVING sum(delta) <> 0) m USING (request_id)
           WHERE d.quantity IS DISTINCT FROM -m.delta LIMIT 1""",
    ),
    (
        "I7",
        "nobody has more than the limit",
        """SELECT buyer || ' has ' || sum(quantity) FROM inventory_decision
           WHERE sale_id = %(sale_id)s AND state IN ('held', 'paid')
           GROUP BY buyer HAVING sum(quantity) > max(buyer_limit) LIMIT 1""",
    ),
    (
        "I8",
        "decided in the order of the line",
        """SELECT request_id || ' was decided after one that came later' FROM (
               SELECT request_id, seq, lag(seq) OVER (ORDER BY decided_no) AS before
               FROM inventory_decision WHERE stock_id = %(stock_id)s AND state <> 'refused') AS ordered
           WHERE seq <= before LIMIT 1""",
    ),
    (
        "I9",
        "nobody was told sold out while a unit was free for them",
        """SELECT d.request_id || ' wanted ' || d.quantity || ', ' || s.available || ' are free'
           FROM inventory_decision d JOIN inventory_stock s ON s.id = d.stock_id
           WHERE d.stock_id = %(stock_id)s AND d.sale_id = %(sale_id)s AND d.state = 'sold_out'
             AND d.quantity <= s.available AND NOT EXISTS (
                 SELECT FROM inventory_stockmovement m
                 WHERE m.stock_id = s.id AND m.delta > 0 AND m.created_at >= d.decided_at)
           LIMIT 1""",
    ),
    (
        "I16",
        "fences rise with the movements",
        """SELECT request_id || ' moved under fence ' || fence || ' after ' || before FROM (
               SELECT request_id, fence, lag(fence) OVER (ORDER BY id) AS before
               FROM inventory_stockmovement WHERE stock_id = %(stock_id)s AND fence IS NOT NULL) AS ordered
           WHERE fence < before LIMIT 1""",
    ),
)

COUNTS = """
SELECT s.total, s.available, s.held, s.sold, s.fence,
       count(d.request_id) AS decided,
       count(d.request_id) FILTER (WHERE d.state = 'held') AS orders_held,
       count(d.request_id) FILTER (WHERE d.state = 'sold_out') AS orders_sold_out,
       count(d.request_id) FILTER (WHERE d.state = 'refused') AS orders_refused,
       count(d.request_id) FILTER (WHERE d.state = 'paid') AS orders_paid,
       coalesce(sum(d.quantity) FILTER (WHERE d.state = 'held'), 0) AS units_held,
       coalesce(max(d.seq), 0) AS last_seq
FROM inventory_stock s LEFT JOIN inventory_decision d ON d.stock_id = s.id AND d.sale_id = %(sale_id)s
WHERE s.id = %(stock_id)s GROUP BY s.id
"""


def audit(scope: Scope) -> dict[str, Any]:
    """Return {ok, invariants: [{id, name, ok, detail}], counts} of one sale. Raises RedisUnavailable.

    The line is looked at before and after the database: what was settled in between is then in one of them (I4).
    """
    client = redis.connect()
    before = line.check(client, scope.sku)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        findings = [_finding(cursor, scope, *query) for query in QUERIES]
        counts = _counts(cursor, scope)
        cursor.execute("SELECT count(*) FROM inventory_decision WHERE stock_id = %(stock_id)s", asdict(scope))
        decided = int(cursor.fetchone()[0])
    after = line.check(client, scope.sku)
    findings += _line_findings(before, decided, after)
    counts |= {
        "queued": after.queued_units,
        "waiting": after.waiting,
        "in_flight": after.flying,
        "admitted": after.admitted,
        "dead_letters": after.dead_letters,
    }
    return {
        "ok": all(finding.ok for finding in findings),
        "invariants": [asdict(finding) for finding in findings],
        "counts": counts,
    }


def _finding(cursor: Cursor, scope: Scope, number: str, name: str, query: str) -> Finding:
    cursor.execute(query, asdict(scope))
    row = cursor.fetchone()
    return Finding(number, name, row is None, "" if row is None else str(row[0]))


def _counts(cursor: Cursor, scope: Scope) -> dict[str, int]:
    cursor.execute(COUNTS, asdict(scope))
    names = [column[0] for column in cursor.description]
    return {name: int(value) for name, value in zip(names, cursor.fetchone(), strict=True)}


def _line_findings(before: LineCheck, decided: int, after: LineCheck) -> list[Finding]:
    """Compare the line with the orders. decided: orders of the SKU in the database, read between the two looks."""
    must_be_decided = before.admitted - before.waiting - before.flying
    at_rest = after.waiting == after.flying == 0
    queued = after.queued_units
    return [
        Finding(
            "I4", "nothing admitted is lost", decided >= must_be_decided, f"{decided} of {must_be_decided} decided"
        ),
        Finding("I5b", "nothing comes from nowhere", decided <= after.admitted, f"{decided} of {after.admitted} asked"),
        Finding("I15", "the line counts its units", queued == 0 or not at_rest, f"{queued} units queued at rest"),
        Finding("I17", "nobody is in line and in flight at once", after.both == 0, f"{after.both} are in both"),
    ]
