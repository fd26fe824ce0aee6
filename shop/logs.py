"""Sets structlog up: JSON lines in production, readable ones elsewhere. Never logs tokens, cookies or secret links."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

import structlog

SECRET_LINK = re.compile(r"(/(?:links|mail/stop)/[^/\s]{1,60}/)[^/\s'\"]+")


def hide_links(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take the secret out of every address of a secret link, of a ticket or in a mail."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = SECRET_LINK.sub(r"\1...", value)
    return event


SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
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
        # It brings a handler of its own unless it has one.
        "loggers": {"post_office": {"handlers": ["console"], "level": level, "propagate": False}},
        "root": {"handlers": ["console"], "level": level},
    }
