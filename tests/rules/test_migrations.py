"""The migrations make exactly the tables of the models; needs no database."""

from __future__ import annotations

from django.apps import apps
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState


def test_no_migration_is_missing() -> None:
    loader = MigrationLoader(None)
    changes = MigrationAutodetector(loader.project_state(), ProjectState.from_apps(apps)).changes(graph=loader.graph)
    assert {app: [migration.operations for migration in found] for app, found in changes.items()} == {}


def test_no_two_migrations_are_heads_of_one_app() -> None:
    assert MigrationLoader(None).detect_conflicts() == {}
