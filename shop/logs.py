"""Sets structlog up: JSON lines in production, readable ones elsewhere. Never logs tokens, cookies or secret links."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import MutableMapping
from typing import Any

import structlog

SECRET_LINK = re.compile(r"(/links/[^/\s]{1,60}/)[^/\s'\"]+")


class Seldom:
    """Bounds the rate of one kind of line. seconds: at most one line in so many. Used by one thread."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._next_at = 0.0
        self._calls = 0

    def count(self) -> int:
        """Count one call; return how many there were since the last line, or 0 when it is too early for the next."""
        self._calls += 1
        now = time.monotonic()
        if now < self._next_at:
            return 0
        calls, self._calls, self._next_at = self._calls, 0, now + self._seconds
        return calls


def drop_client_traceback(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Leave the traceback out of what Django says of a request that it refused: it is no fault of ours."""
    record = event.get("_record")
    name, level = (record.name, record.levelno) if record is not None else ("", 0)
    if name.startswith("django.security.") or (name == "django.request" and level < logging.ERROR):
        event.pop("exc_info", None)
    return event


def hide_links(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take the secret out of every address of a secret link (shop/ticket_links.py)."""
    for name, value in event.items():
        if isinstance(value, str) and "/links/" in value:
            event[name] = SECRET_LINK.sub(r"\1...", value)
    return event


SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    drop_client_traceback,
    structlog.processors.format_exc_info,
    hide_links,
]


def logging_config(*, level: str, as_json: bool) -> dict[str, Any]:
    """Return a dictConfig for `level` (a logging level name); also configures structlog itself."""
    structlog.configure(
        processors=[*SHARED_PROCESSORS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    as_text = structlog.processors.KeyValueRenderer(key_order=["event"])
    renderer = structlog.processors.JSONRenderer() if as_json else as_text
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processor": renderer,
                "foreign_pre_chain": SHARED_PROCESSORS,
            }
        },
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["console"], "level": level},
    }
