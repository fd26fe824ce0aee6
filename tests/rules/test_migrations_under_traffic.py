"""Migrations from here on can run while the shop sells and processes of the version before go on (CONTRIBUTING.md says
why each rule). They are judged by their operations, which need no database; what a reason allows is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.apps import apps
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently
from django.db import connection, models
from django.db.migrations import Migration, RunPython, RunSQL, SeparateDatabaseAndState
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import fields
from django.db.migrations.operations import models as tables
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED, Q, Value
from django.db.models.expressions import Expression
from django.db.models.functions import Now

from inventory.management.commands.migrate import UNLOCKED

# The last migration of each app from before these rules.
LAST_BEFORE = {
    "inventory": "0005",
    "shop": "0028",
    "passkeys": "0001",
    "sandbox": "0002",
    "stripe": "0001",
    "salelog": "0002",
}
# What breaks a rule and why it may, by app, migration and operation: ("shop.0031_name", "RemoveField sale.old"): "why".
ALLOWED: dict[tuple[str, str], str] = {
    ("shop.0032_closed_sales_free_their_window", "AddConstraint sale"): (
        "PostgreSQL has no NOT VALID for exclusion; the table has a row a sale: 10,000 rows take half a second"
    ),
    ("shop.0033_request_keys_go_with_buyers", "RunSQL"): "the table has a row a sale, and these ended long ago",
    ("shop.0041_retired_sales_keep_no_uses", "RunSQL"): "its rows are of retired sales: nobody else wants them",
    ("shop.0042_buyers_go_alongside_acts", "RunSQL"): "replaces a function, of whose text it changes one lock",
    ("shop.0036_acts_have_their_own_lock", "RunSQL"): "replaces a function, of whose text it changes one number",
}

ONLY_STATE = (tables.AlterModelOptions, tables.AlterModelManagers, tables.AlterModelTableComment)
TWO_RELEASES = (
    fields.RemoveField,
    fields.RenameField,
    tables.DeleteModel,
    tables.RenameModel,
    tables.AlterModelTable,
    tables.AlterTogetherOptionOperation,
    tables.AlterOrderWithRespectTo,
)
QUICK = (AddConstraintNotValid, tables.RemoveConstraint, tables.RenameIndex)
# The body of a function is run later, by its callers.
BODY = re.compile(r"\$(\w*)\$.*?\$\1\$|--[^\n]*", re.DOTALL)
QUICK_SQL = re.compile(
    r"(CREATE (OR REPLACE )?(FUNCTION|VIEW|TRIGGER)|DROP (FUNCTION|VIEW|TRIGGER)|COMMENT ON|REVOKE|GRANT)\b", re.I
)


def name_of(operation: Operation) -> str:
    """Return an operation's kind and what it is about, e.g. AddField sale.title."""
    parts = [getattr(operation, part, "") for part in ("model_name_lower", "name_lower")]
    return f"{type(operation).__name__} {'.'.join(part for part in parts if part)}".strip()


def faults(migration: Migration, before: ProjectState) -> dict[str, str]:
    """Return what breaks a rule in a migration that comes after `before`, by its operation."""
    operations = list(flatten(migration.operations))
    made = {each.name_lower for each in operations if isinstance(each, tables.CreateModel)}
    found: dict[str, str] = {}
    state = before.clone()
    locking = [each for each in operations if not is_harmless(each, made)]
    for operation in operations:
        fault = ""
        if operation in locking:
            fault = fault_of(operation, state, migration.app_label)
            if isinstance(operation, UNLOCKED) and (migration.atomic or len(operations) > 1):
                fault = "belongs alone into a migration with atomic = False"
            elif isinstance(operation, RunPython) and (len(locking) > 1 or made):
                fault = "holds the locks of the other operations for as long as it runs: a migration of its own"
        if fault:
            found[name_of(operation)] = fault
        operation.state_forwards(migration.app_label, state)
    return found


def flatten(operations: list[Operation]) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, SeparateDatabaseAndState):
            yield from flatten(operation.database_operations)
        else:
            yield operation


def is_harmless(operation: Operation, made: set[str]) -> bool:
    """Say whether an operation touches no table that the version before knows."""
    of_new_table = getattr(operation, "model_name_lower", None) in made
    return isinstance(operation, (tables.CreateModel, *ONLY_STATE)) or of_new_table


def fault_of(operation: Operation, state: ProjectState, app: str) -> str:
    """Return the rule that an operation on a table of before breaks, '' for none."""
    match operation:
        case fields.AddField():
            return fault_of_column(operation.field)
        case fields.AlterField():
            same = not changes_column(operation, state, app=app)
            return "" if same else "changes a column that the version before uses: add another one"
        case RunPython():
            return "" if operation.reversible else "cannot be taken back: give it a reverse_code"
        case RunSQL():
            return fault_of_sql(operation)
        case _ if isinstance(operation, TWO_RELEASES):
            return "the version before still uses it: first a release that does not"
        case _ if isinstance(operation, (*UNLOCKED, *QUICK)):
            return ""
    return "locks the table for as long as it is long: the concurrent, or the NOT VALID, kind of it"


def changes_column(operation: fields.AlterField, state: ProjectState, *, app: str) -> bool:
    after = state.clone()
    operation.state_forwards(app, after)
    models_of = [each.apps.get_model(app, operation.model_name) for each in (state, after)]
    old, new = (each._meta.get_field(operation.name) for each in models_of)
    return bool(connection.schema_editor()._field_should_be_altered(old, new))  # type: ignore[attr-defined]


def fault_of_column(field: models.Field) -> str:  # type: ignore[type-arg]
    default = field.db_default
    if isinstance(field, models.GeneratedField):
        return "writes every row again: fill a column in steps instead"
    if field.many_to_many:
        return ""
    if field.unique or field.db_index:
        return "builds its index under a lock: db_index=False, and the index concurrently"
    if default is NOT_PROVIDED:
        return "" if field.null else "the version before cannot insert: null=True or db_default"
    constant = not isinstance(default, Expression) or isinstance(default, Value | Now)
    return "" if constant else "a default of its own for each row writes every row again"


def fault_of_sql(operation: RunSQL) -> str:
    if not operation.reversible:
        return "cannot be taken back: give it a reverse_sql"
    text = operation.sql if isinstance(operation.sql, str) else ";".join(str(each) for each in operation.sql)
    statements = [each.strip() for each in BODY.sub("", text).split(";")]
    bad = [each for each in statements if each and not QUICK_SQL.match(each)]
    return f"is not known to be quick: {bad[0][:60]}" if bad else ""


def ours(loader: MigrationLoader) -> Iterator[Migration]:
    """Yield each of our migrations from after LAST_BEFORE."""
    for (app, name), migration in sorted(loader.disk_migrations.items()):
        if app in LAST_BEFORE and name[:4] > LAST_BEFORE[app]:
            yield migration


def test_migrations_can_run_while_the_shop_sells() -> None:
    loader = MigrationLoader(None)
    found = {}
    for migration in ours(loader):
        before = loader.project_state((migration.app_label, migration.name), at_end=False)
        for operation, fault in faults(migration, before).items():
            if not ALLOWED.get((f"{migration.app_label}.{migration.name}", operation)):
                found[f"{migration.app_label}.{migration.name}: {operation}"] = fault
    assert found == {}


def test_the_rules_hold_for_every_app_of_ours() -> None:
    migrated = {app for app, _ in MigrationLoader(None).disk_migrations}
    first_party = {app for app in migrated if "site-packages" not in apps.get_app_config(app).path}
    assert first_party == set(LAST_BEFORE)


TITLE = models.CharField(max_length=10)
INDEX = models.Index(fields=["seq"], name="order_by_seq")
CHECK = models.CheckConstraint(condition=Q(quantity__lt=100), name="order_small")


@pytest.mark.parametrize(
    ("operation", "is_fault"),
    [
        (fields.AddField("order", "word", TITLE), True),
        (fields.AddField("order", "word", models.CharField(max_length=10, default="")), True),
        (fields.AddField("order", "word", models.CharField(max_length=10, db_default="")), False),
        (fields.AddField("order", "word", models.CharField(max_length=10, null=True)), False),
        (fields.AddField("order", "word", models.CharField(max_length=10, null=True, unique=True)), True),
        (fields.AddField("order", "moment", models.DateTimeField(db_default=Now())), False),
        (fields.AddField("order", "number", models.FloatField(db_default=models.functions.Random())), True),
        (fields.AddField("order", "other", models.ForeignKey("shop.Sale", models.PROTECT, null=True)), True),
        (fields.RemoveField("order", "quantity"), True),
        (fields.RenameField("order", "quantity", "count"), True),
        (fields.AlterField("order", "quantity", models.BigIntegerField()), True),
        (fields.AlterField("order", "quantity", models.PositiveIntegerField(verbose_name="how many")), False),
        (tables.DeleteModel("order"), True),
        (tables.AddIndex("order", INDEX), True),
        (tables.AddConstraint("order", CHECK), True),
        (AddConstraintNotValid("order", CHECK), False),
        (RunPython(RunPython.noop), True),
        (RunPython(RunPython.noop, RunPython.noop), False),
        (RunSQL("CREATE INDEX a ON shop_order (seq)", "DROP INDEX a"), True),
        (RunSQL("UPDATE shop_order SET quantity = 1", ""), True),
        (RunSQL("CREATE OR REPLACE FUNCTION f() AS $$ UPDATE shop_order; $$ LANGUAGE sql", ""), False),
        (AddIndexConcurrently("order", INDEX), True),
    ],
    ids=range(22),
)
def test_a_migration_that_breaks_a_rule_is_found(operation: Operation, is_fault: bool) -> None:
    """The controls, alone in a migration with a transaction, each alongside what may be done instead."""
    assert bool(faults(migration_of(operation), shop_state())) == is_fault


def test_an_index_is_built_concurrently_and_alone() -> None:
    index = AddIndexConcurrently("order", INDEX)
    alone = migration_of(index, atomic=False)
    assert faults(alone, shop_state()) == {}
    assert faults(migration_of(index, fields.AddField("sale", "word", TITLE), atomic=False), shop_state())


def test_rows_are_changed_in_a_migration_of_their_own() -> None:
    column = fields.AddField("order", "word", models.CharField(max_length=10, db_default=""))
    rows = RunPython(RunPython.noop, RunPython.noop)
    assert list(faults(migration_of(column, rows), shop_state())) == ["RunPython"]


def test_a_new_table_may_be_made_in_one_go() -> None:
    table = tables.CreateModel("Note", [("id", models.BigAutoField(primary_key=True)), ("title", TITLE)])
    index = tables.AddIndex("note", models.Index(fields=["title"], name="note_by_title"))
    assert faults(migration_of(table, index), shop_state()) == {}


def migration_of(*operations: Operation, atomic: bool = True) -> Migration:
    migration = Migration("9999_made_up", "shop")
    migration.operations, migration.atomic = list(operations), atomic
    return migration


def shop_state() -> ProjectState:
    return MigrationLoader(None).project_state()
