"""Registers the tables of the sale logs with Django; does nothing at start."""

from django.apps import AppConfig


class SaleLogConfig(AppConfig):
    name = "shop.salelog"
    label = "salelog"
