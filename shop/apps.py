"""Registers the shop with Django, and logs what django-axes locks."""

from typing import Any

import structlog
from django.apps import AppConfig
from django.http import HttpRequest

from shop.client_address import client_address

log = structlog.get_logger(__name__)


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self) -> None:
        """Listen to locked logins."""
        from axes.signals import user_locked_out  # here: its app must be ready first

        user_locked_out.connect(log_locked_login)


def log_locked_login(*_: Any, request: HttpRequest, username: str | None, **_more: Any) -> None:
    """Log a login that was refused, with the address and the account that somebody typed."""
    log.warning(
        "login refused after too many failed ones",
        action="login_locked",
        address=client_address(request),
        account=(username or "")[:150],
    )
