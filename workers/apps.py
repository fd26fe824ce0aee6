"""Makes the worker commands known to manage.py, and grants rights after each migration; has no tables."""

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate

from workers.database_rights import grant_rights


class WorkersConfig(AppConfig):
    name = "workers"

    def ready(self) -> None:
        """Grant when the last of our own tables is there; this app has none, so Django never speaks of it."""
        post_migrate.connect(grant_rights, sender=apps.get_app_config("shop"))
