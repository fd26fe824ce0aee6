"""Registers the inventory tables with Django; does nothing at start."""

from django.apps import AppConfig

# Before another app imports the library of Redis: here it does not take OpenTelemetry along.
import inventory.redis  # noqa: F401


class InventoryConfig(AppConfig):
    name = "inventory"
