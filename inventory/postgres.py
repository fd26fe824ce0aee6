"""Opens the workers' own PostgreSQL connections, with every timeout set, and has the numbers of all advisory locks.
Holds no statement.
"""

from __future__ import annotations

import string
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum, unique
from typing import Any, TypeAlias, cast

import psycopg
from django.conf import settings
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from inventory.redis import clocks

# Letters, digits, "-", "_", the point of a price, and the comma between elements.
PLAIN = f"{string.ascii_letters}{string.digits}-_.,".encode()

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Pipeline: TypeAlias = psycopg.Pipeline
Cursor: TypeAlias = Any  # a psycopg cursor or Django's wrapper of one: both have execute() and fetch…()

# Statistics of a table that grows by thousands of rows a second are always stale: without this a batch would sooner
# or later be looked up by reading the whole table.
SLOW_PLANS = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
INDEX_ONLY = " ".join(f"-c {name}=off" for name in SLOW_PLANS)
# The same for the rest of a transaction.
SET_INDEX_ONLY = "; ".join(f"SET LOCAL {name} = off" for name in SLOW_PLANS)

# A process that is stopped between two statements of a pipeline counts as busy, so that no other timeout ends it, and
# keeps the row of its SKU until it goes on.
MAX_TRANSACTION_SECONDS = 20
TRANSACTION_TIMEOUT_SINCE = 170_000  # PostgreSQL 17
# What a worker meets that was stopped for too long: its connection is gone, and its transaction was rolled back.
STOPPED_TOO_LONG = (psycopg.errors.IdleInTransactionSessionTimeout, psycopg.errors.TransactionTimeout)


@unique
class AdvisoryLock(IntEnum):
    """Locks of one key: one duty of the whole shop. PostgreSQL keeps them apart from those of two keys."""

    MAILER = 7_305_117
    NOTARY = 7_305_118
    # Taken within shop_forget_acts, which a migration wrote.
    OLD_ACTS = 7_305_119


@unique
class TwoKeyAdvisoryLock(IntEnum):
    """First keys of locks of two keys; the second one is the id, or the hash, of the row that the duty is about."""

    ORDINALS = 7_305_118
    CONTROL_ROOM = 0x46440001
    BULK_ACT = 0x46440002
    RECORDER = 0x46440003
    PAYMENT_TURN = 0x46440004
    NEW_SKU = 0x46440005


def connect() -> Connection:
    """Return a new connection in which each transaction is begun and ended explicitly. Raises psycopg.Error."""
    # Django's own figures, not the URL: in tests they name the test database.
    target = connections["default"].settings_dict
    return psycopg.connect(
        host=target["HOST"] or None,
        port=target["PORT"] or None,
        dbname=target["NAME"],
        user=target["USER"] or None,
        password=target["PASSWORD"] or None,
        autocommit=True,
        **{**target["OPTIONS"], "options": f"{settings.DATABASE_TIMEOUTS} {INDEX_ONLY}"},
        application_name="fairdrop-worker",
    )


class LastingConnection:
    """A worker's one connection: opened when first wanted, and again when it was dropped or the server ended it.

    From PostgreSQL 17 on no transaction of it lasts longer than MAX_TRANSACTION_SECONDS.
    lock_seconds: how long it waits for a row, by default as long as the settings say.
    """

    def __init__(self, *, lock_seconds: float | None = None) -> None:
        self._lock_seconds = lock_seconds
        self._connection: Connection | None = None

    def get(self) -> Connection:
        """Return the connection. Raises psycopg.Error when the database is away."""
        if self._connection is None or self._connection.closed:
            self._connection = connect()
            try:
                limit_transaction(self._connection.cursor(), only_this=False)
                if self._lock_seconds is not None:
                    wait = f"{self._lock_seconds * 1000:.0f}ms"
                    self._connection.execute("SELECT set_config('lock_timeout', %s, false)", [wait])
            except BaseException:
                self.drop()
                raise
        return self._connection

    def drop(self) -> None:
        """End the connection if there is one; whatever it had under way is rolled back."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def limit_transaction(cursor: Cursor, *, only_this: bool) -> None:
    """Let PostgreSQL, from 17 on, end a connection whose transaction lasts longer than MAX_TRANSACTION_SECONDS.

    Until its COMMIT has begun. only_this: the transaction that is under way, none of those that follow.
    """
    if cursor.connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        limit = f"{MAX_TRANSACTION_SECONDS}s"
        cursor.execute("SELECT set_config('transaction_timeout', %s, %s)", [limit, only_this])


def is_away(error: BaseException | None) -> bool:
    """Say whether psycopg's `error` means that the database was not reached, or is being stopped (57P)."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith("57P")


@contextmanager
def pipeline_of(django: BaseDatabaseWrapper) -> Iterator[Pipeline]:
    """Send several statements of Django's own connection at once for the length of a `with` block."""
    django.ensure_connection()
    # What a Sync raises has not passed through Django's cursors.
    with django.wrap_database_errors, cast(Connection, django.connection).pipeline() as pipeline:
        yield pipeline


def look_at_clock() -> None:
    """Compare the clock of PostgreSQL with ours, over this thread's connection of Django's. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")  # a connection may have to be opened first, and that is no clock's time
        began = time.time()
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        clocks.DATABASE.note(cursor.fetchone()[0], began=began, ended=time.time())


def array(values: Iterable[str | int]) -> str:
    """Return `values` as a PostgreSQL array literal; each is a number, a word of ours, or made of URL-safe letters.

    The word NULL stands for NULL. Built here because the driver looks at every element with a pattern of its own, which
    took a third of a settlement.
    Raises ValueError when an element holds a sign that means something in a literal.
    """
    text = ",".join(map(str, values))
    if text.encode().translate(None, delete=PLAIN):
        raise ValueError("an element of this array is not made of plain letters")
    return f"{{{text}}}"
