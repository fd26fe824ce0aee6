"""Registers the shop with Django, and logs what django-axes locks."""

from typing import Any

import structlog
from django.apps import AppConfig

log = structlog.get_logger(__name__)


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self) -> None:
        """Listen to locked logins."""
        from axes.signals import user_locked_out  # here: its app must be ready first

        user_locked_out.connect(log_locked_login)


def log_locked_login(*_: Any, username: str | None, ip_address: str | None, **_more: Any) -> None:
    """Log a login that was refused, with the address and the account that somebody typed."""
    log.warning(
        "login refused after too many failed ones",
        action="login_locked",
        address=ip_address,
        account=(username or "")[:150],
    )
