"""Reads how much of the database a query touches. Tests bound this and not a time: a time would be the machine's."""

from __future__ import annotations

import json
from typing import Any

from django.db import connection
from django.db.models.query import QuerySet


def pages_read(query: QuerySet[Any, Any]) -> int:
    """Return how many pages of tables and indexes the database touches for a query."""
    plan = json.loads(query.explain(format="json", analyze=True, buffers=True))[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def rows_scanned(table: str) -> int:
    """Return how many rows of a table the transaction so far has read without an index."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = %s", [table])
        return int(cursor.fetchone()[0])
