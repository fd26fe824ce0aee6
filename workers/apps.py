"""Makes the worker commands known to manage.py; has no tables."""

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"
