"""Registers the inventory tables with Django; does nothing at start."""

from django.apps import AppConfig


class InventoryConfig(AppConfig):
    name = "inventory"
