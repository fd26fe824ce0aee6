"""The recorded history of a sale: writes how it stands, and reads it as the points of a chart.
Never says anything of a time in which nobody looked, and never keeps more than MAX_SAMPLES rows of a sale.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection
from django.utils import timezone

from shop.models import SaleSample

# A point of the charts: Unix s, units free, held, sold, requests waiting, decisions a second, ms p50, ms p99.
Point = list[float | None]
FIGURES = ("available", "held", "sold", "waiting", "rate", "p50_ms", "p99_ms")
# Between two looks that are further apart nothing is known.
GAP = timedelta(seconds=10)
MAX_SAMPLES = 2_000
NOTHING: Point = [None] * len(FIGURES)

# Every second row of a sale becomes part of the row before it, unless there is a gap between the two.
PAIRS = """
WITH numbered AS (
    SELECT id, since, until, row_number() OVER (ORDER BY since) AS number FROM shop_salesample
    WHERE sale_id = %(sale_id)s
)
SELECT kept.id, gone.id, gone.until FROM numbered kept JOIN numbered gone ON gone.number = kept.number + 1
WHERE kept.number %% 2 = 1 AND gone.since - kept.until <= make_interval(secs => %(gap_seconds)s)
"""
NEWEST = """
SELECT newest.* FROM unnest(%(sale_ids)s::bigint[]) AS asked (sale_id) CROSS JOIN LATERAL (
    SELECT * FROM shop_salesample s WHERE s.sale_id = asked.sale_id ORDER BY since DESC LIMIT 1) AS newest
"""
WIDEN = """
UPDATE shop_salesample s SET until = pair.until
FROM unnest(%(ids)s::bigint[], %(ends)s::timestamptz[]) AS pair (id, until) WHERE s.id = pair.id
"""


class Figures(NamedTuple):
    """How a sale stands, in the order of FIGURES; what is not known, or was not measured, is None."""

    available: int
    held: int
    sold: int
    waiting: int | None
    rate: float | None
    p50_ms: float | None
    p99_ms: float | None


def last_samples(sale_ids: Sequence[int]) -> dict[int, SaleSample]:
    """Return the newest row of each sale that has one, in one query."""
    return {each.sale_id: each for each in SaleSample.objects.raw(NEWEST, {"sale_ids": list(sale_ids)})}


def record(sale_id: int, figures: Figures, *, at: datetime, last: SaleSample | None) -> None:
    """Write how a sale stands at `at`, in the caller's transaction. last: its newest row.

    The same figures again, without a gap, make the last row longer: a sale that rests costs one row.
    """
    if last is not None and at <= last.until:
        return
    if last is not None and at - last.until <= GAP and tuple(getattr(last, name) for name in FIGURES) == figures:
        SaleSample.objects.filter(pk=last.pk).update(until=at)
        return
    SaleSample.objects.create(sale_id=sale_id, since=at, until=at, **figures._asdict())
    _thin_out(sale_id)


def _thin_out(sale_id: int) -> None:
    """Halve the rows of a sale that has more than MAX_SAMPLES, in the caller's transaction."""
    if SaleSample.objects.filter(sale_id=sale_id).count() <= MAX_SAMPLES:
        return
    with connection.cursor() as cursor:
        cursor.execute(PAIRS, {"sale_id": sale_id, "gap_seconds": GAP.total_seconds()})
        pairs = cursor.fetchall()
        cursor.execute(WIDEN, {"ids": [kept for kept, _, _ in pairs], "ends": [until for _, _, until in pairs]})
    SaleSample.objects.filter(pk__in=[gone for _, gone, _ in pairs]).delete()


def read_points(sale_id: int, *, seconds: float | None = None) -> list[Point]:
    """Return the recorded points of a sale, oldest first: of the last `seconds`, or all of them; one query.

    Each row is a point at its beginning and one at its end; where nobody looked there is a point without figures.
    """
    rows = SaleSample.objects.filter(sale_id=sale_id).order_by("since")
    if seconds is not None:
        rows = rows.filter(until__gt=timezone.now() - timedelta(seconds=seconds))
    points: list[Point] = []
    end: datetime | None = None
    for row in rows:
        if end is not None and row.since - end > GAP:
            points.append([end.timestamp() + 0.001, *NOTHING])
        figures: Point = [getattr(row, name) for name in FIGURES]
        points.append([row.since.timestamp(), *figures])
        if row.until > row.since:
            points.append([row.until.timestamp(), *figures])
        end = row.until
    return points
