"""Registers the rivals' tables with Django; does nothing at start."""

from django.apps import AppConfig


class RivalsConfig(AppConfig):
    name = "loadtest.rivals"
    label = "rivals"
    default_auto_field = "django.db.models.BigAutoField"
