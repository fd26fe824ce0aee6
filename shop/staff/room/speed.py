"""How long decisions took, from ask to decision, leaving out those that waited for a unit to come back.
Never changes anything.
"""

from __future__ import annotations

from typing import NamedTuple

from django.db import connection

from inventory import redis
from inventory.redis import keys

SPEED_SECONDS = 10
# Bounded by the newest orders and movements of the whole shop: no index leads to "decided lately", and none shall be
# paid for. Redis keeps the seq up to which people in line were told that they are waitlisted. Of those, one that got
# units waited for them when some came back while it stood in line; one that got none waited until the last were gone.
SPEED = """
WITH lately AS (
    SELECT decided_at AS at, seq, hold_expires_at IS NOT NULL AS had_units, NULL::timestamptz AS freed FROM shop_order
    WHERE id > (SELECT coalesce(max(id), 0) FROM shop_order) - 5000 AND sale_id = %(sale_id)s
      AND NOT restored AND NOT standby
      AND decided_at > clock_timestamp() - make_interval(secs => %(seconds)s)
), freed AS (
    SELECT created_at AS at, NULL::bigint AS seq, NULL::boolean AS had_units, created_at AS freed
    FROM inventory_stockmovement
    WHERE id > (SELECT coalesce(max(id), 0) FROM inventory_stockmovement) - 10000 AND stock_id = %(stock_id)s
      AND delta > 0 AND created_at > clock_timestamp() - make_interval(secs => 2 * %(seconds)s)
), together AS (
    SELECT at, seq, had_units, max(freed) OVER (ORDER BY at ROWS UNBOUNDED PRECEDING) AS last_freed
    FROM (SELECT * FROM lately UNION ALL SELECT * FROM freed) AS each
), quick AS (
    SELECT extract(epoch FROM at) * 1000 - seq / 1000.0 AS ms FROM together
    WHERE seq IS NOT NULL
      AND NOT (seq <= %(waitlisted_to)s AND (NOT had_units OR coalesce(last_freed > to_timestamp(seq / 1e6), false)))
)
SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)
FROM quick
"""


class Speed(NamedTuple):
    """Decisions of the last SPEED_SECONDS; both times in ms, None when there was none."""

    decided: int
    p50_ms: float | None
    p99_ms: float | None


def read_speed(*, sale_id: int, stock_id: int, waitlisted_to: int) -> Speed:
    """Return how long the newest decisions of a sale took. waitlisted_to: the seq up to which people waited."""
    values = {"sale_id": sale_id, "stock_id": stock_id, "waitlisted_to": waitlisted_to, "seconds": SPEED_SECONDS}
    with connection.cursor() as cursor:
        cursor.execute(SPEED, values)
        count, p50, p99 = cursor.fetchone()
    return Speed(count, *(None if ms is None else max(0.0, ms) for ms in (p50, p99)))


def read_waitlisted_to(client: redis.Client, sku: str) -> int:
    """Return the seq up to which people in the line of `sku` were told that they are waitlisted, 0 for nobody.

    Raises RedisUnavailable.
    """
    (seq,) = redis.run_commands(client, [("HGET", keys.stock(sku), "waitlisted_to")])
    return int(seq or 0)
