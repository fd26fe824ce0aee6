"""Registers the shop with Django, and begins to write the log of accounts."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self) -> None:
        """Listen to logins."""
        from shop.accounts import act_log  # here: models cannot be read before

        act_log.connect()
