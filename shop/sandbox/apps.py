"""Registers the sandbox's tables and page with Django; does nothing at start."""

from django.apps import AppConfig


class SandboxConfig(AppConfig):
    name = "shop.sandbox"
    label = "sandbox"
