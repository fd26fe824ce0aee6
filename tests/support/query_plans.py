"""Reads how much of the database a query touches. Tests bound this and not a time: a time would be the machine's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.db.models.query import QuerySet

from tests.support import road


def pages_read(query: QuerySet[Any, Any]) -> int:
    """Return how many pages of tables and indexes the database touches for a query."""
    plan = json.loads(query.explain(format="json", analyze=True, buffers=True))[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def rows_read(*tables: str) -> int:
    """Return how many rows of tables the transaction so far has read, by index or not."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)",
            [list(tables)],
        )
        return int(cursor.fetchone()[0])


@contextmanager
def no_new_statistics(*tables: str) -> Iterator[None]:
    """Keep autovacuum from analyzing tables for the length of a block: it skips what is locked; rows can be written."""
    with road.own_connection() as own, own.transaction():
        own.execute(f"LOCK TABLE {', '.join(tables)} IN SHARE UPDATE EXCLUSIVE MODE")
        yield
