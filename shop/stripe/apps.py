"""Registers the table of Checkout Sessions with Django; does nothing at start."""

from django.apps import AppConfig


class StripeConfig(AppConfig):
    name = "shop.stripe"
    label = "stripe"
