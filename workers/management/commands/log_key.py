"""manage.py log_key: prints a new key for FAIRDROP_LOG_KEYS. Keeps nothing."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand

from shop.tickets.keys import encode


class Command(BaseCommand):
    help = (
        "Print a new key for FAIRDROP_LOG_KEYS. Append it to the others, which stay; when all web processes and the"
        " notary have started again, move it to the front, the moment of doing so before its =, and start them again"
    )

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}={encode(secrets.token_bytes(32))}")
