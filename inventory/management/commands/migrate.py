"""manage.py migrate: Django's own, with timeouts of its own, so that a shop that sells does not stand still behind it.
Never waits for a lock for longer than buyers can; a try without one is rolled back as a whole, and made again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.contrib.postgres.operations import (
    AddIndexConcurrently,
    RemoveIndexConcurrently,
    ValidateConstraint,
)
from django.core.management.base import CommandError, CommandParser
from django.core.management.commands.migrate import Command as DjangoMigrate
from django.db import DatabaseError, OperationalError, connections
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor

# A session that waits for ACCESS EXCLUSIVE makes all that come later wait behind it. The shop's processes wait for a
# lock for 4 s: a quarter of that fails none of them.
LOCK_SECONDS = 1.0
# Of each statement, which may keep its locks for so long.
STATEMENT_SECONDS = 2.0
# Building an index concurrently, or validating a constraint, keeps nobody from writing, however long it takes.
UNLOCKED_SECONDS = 3600.0
TRIES = 30
MAX_PAUSE_SECONDS = 10.0
# PostgreSQL's lock_not_available and deadlock_detected.
LOCK_STATES = frozenset({"55P03", "40P01"})
QUERY_CANCELED = "57014"
UNLOCKED = (AddIndexConcurrently, RemoveIndexConcurrently, ValidateConstraint)


class Command(DjangoMigrate):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--lock-seconds", type=float, default=LOCK_SECONDS, help="wait for a lock for so long")
        parser.add_argument(
            "--statement-seconds", type=float, default=STATEMENT_SECONDS,
            help="cancel a statement that takes longer, and roll its migration back; 0: let it take as long as it does",
        )  # fmt: skip
        parser.add_argument("--tries", type=int, default=TRIES, help="how often to ask for a lock before giving up")

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate; raises CommandError when no try got its locks, or a statement took too long."""
        if min(options["lock_seconds"], options["tries"]) <= 0 or options["statement_seconds"] < 0:
            raise CommandError("--lock-seconds and --tries must be above 0, --statement-seconds at least 0")
        self._options = options
        try:
            for number in range(1, options["tries"] + 1):
                if self._try(number, *args):
                    return
        finally:
            # A connection that broke has no limits any more, and must not hide why.
            with suppress(DatabaseError), connections[options["database"]].cursor() as cursor:
                cursor.execute("RESET lock_timeout; RESET statement_timeout")
        raise CommandError("no try got its locks: end the long transactions (pg_stat_activity), and run it again")

    def _try(self, number: int, *args: Any) -> bool:
        """Migrate once, from where the last try came to; return whether it got every lock."""
        options = self._options
        self._limit(lock_seconds=options["lock_seconds"], statement_seconds=options["statement_seconds"])
        try:
            if not (options["plan"] or options["check_unapplied"]):
                self._drop_broken_indexes()
            super().handle(*args, **options)
        except OperationalError as error:
            state = getattr(error.__cause__, "sqlstate", None)
            if state == QUERY_CANCELED:
                advice = "run it again while no sale is open" + (
                    "" if self._is_unlocked else ", with --statement-seconds 0"
                )
                raise CommandError(f"a statement took longer than {self._statement_seconds:g} s: {advice}") from error
            if state not in LOCK_STATES:
                raise
            self._pause(number, error)
            return False
        return True

    def _pause(self, number: int, error: OperationalError) -> None:
        tries = self._options["tries"]
        pause_seconds = min(float(2 ** (number - 1)), MAX_PAUSE_SECONDS) if number < tries else 0.0
        again = f"; again in {pause_seconds:g} s" if pause_seconds else ""
        self.stderr.write(f"try {number} of {tries}: no lock, rolled back{again}: {str(error).splitlines()[0]}")
        self.stderr.flush()
        time.sleep(pause_seconds)

    def migration_progress_callback(self, action: str, migration: Migration | None = None, fake: bool = False) -> None:
        """As Django's; before each migration, also set how long its statements may take."""
        options = self._options
        if migration is not None and action in ("apply_start", "unapply_start"):
            if locks_nobody_out(migration):
                self._limit(lock_seconds=0, statement_seconds=UNLOCKED_SECONDS)
            else:
                self._limit(lock_seconds=options["lock_seconds"], statement_seconds=options["statement_seconds"])
        elif migration is not None:
            self._limit(lock_seconds=options["lock_seconds"], statement_seconds=options["statement_seconds"])
        super().migration_progress_callback(action, migration, fake)

    def _limit(self, *, lock_seconds: float, statement_seconds: float) -> None:
        self._statement_seconds, self._is_unlocked = statement_seconds, lock_seconds == 0
        with connections[self._options["database"]].cursor() as cursor:
            cursor.execute(
                "SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false)",
                [f"{lock_seconds * 1000:.0f}", f"{statement_seconds * 1000:.0f}"],
            )

    def _drop_broken_indexes(self) -> None:
        """Drop what a try left of the indexes that the migrations still to come build concurrently."""
        executor = MigrationExecutor(connections[self._options["database"]])
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        names = [
            operation.index.name
            for migration, _ in plan
            for operation in migration.operations
            if isinstance(operation, AddIndexConcurrently)
        ]
        for name in drop_invalid_indexes(names, using=self._options["database"]):
            self.stderr.write(f"dropped what was left of index {name}")


def locks_nobody_out(migration: Migration) -> bool:
    """Say whether nothing that a migration does keeps others from writing."""
    return bool(migration.operations) and all(isinstance(each, UNLOCKED) for each in migration.operations)


def drop_invalid_indexes(names: Sequence[str], *, using: str = "default") -> list[str]:
    """Drop those of `names` that a build that was ended left behind, and return their names; one that works stays."""
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE NOT indisvalid"
            " AND relnamespace = current_schema()::regnamespace AND relname = ANY(%s) ORDER BY relname",
            [list(names)],
        )
        found = [name for (name,) in cursor.fetchall()]
        for name in found:
            cursor.execute(f"DROP INDEX CONCURRENTLY {connection.ops.quote_name(name)}")
    return found
