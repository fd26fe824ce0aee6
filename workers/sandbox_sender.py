"""Sends what the sandbox has to say and could not say at once: late, slow and refused notices. Never waits for one.
Called by `manage.py run_worker sandbox`.
"""

from __future__ import annotations

import structlog
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from shop.sandbox import deliveries

log = structlog.get_logger(__name__)


def send_once() -> int:
    """Send what is due; return how many were tried. Raises nothing: what fails now is due again."""
    close_old_connections()
    try:
        return deliveries.send_due()
    except (DatabaseError, InterfaceError) as error:
        log.warning("database away or busy", action="notice_retry", error=str(error))
        connection.close()
        return 0
