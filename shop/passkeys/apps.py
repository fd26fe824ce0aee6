"""Registers the table of passkeys with Django; does nothing at start."""

from django.apps import AppConfig


class PasskeysConfig(AppConfig):
    name = "shop.passkeys"
    label = "passkeys"
