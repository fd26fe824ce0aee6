"""Makes the worker commands known to manage.py, and grants rights after each migration; has no tables."""

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate

from workers.database_rights import grant_rights


class WorkersConfig(AppConfig):
    name = "workers"

    def ready(self) -> None:
        """Grant when the last of our own tables is there; Django sends no post_migrate for this app, which has none."""
        post_migrate.connect(grant_rights, sender=apps.get_app_config("shop"))
