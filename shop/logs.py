"""Sets structlog up: JSON lines in production, readable ones elsewhere. Never shows tokens, cookies,
passwords, addresses of mail or secret links: they are hidden in every line, also in those of libraries."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, MutableMapping
from typing import Any

import structlog

HIDDEN = "..."
MIN_SECRET_LENGTH = 8
# Fields that are never shown, whatever is in them.
SECRET_FIELD = re.compile(r"authorization|cookie|password|secret|session|signature|ticket$|token$", re.IGNORECASE)
# What proves somebody's right, or who somebody is, wherever it stands in a line. No pattern takes a quotation mark or a
# backslash: the line stays what it was, JSON or not.
SECRET_TEXTS = [
    (re.compile(r"(/(?:links|mail/stop)/[^/\s\\]{1,60}/)[^/\s'\"\\]+"), r"\1" + HIDDEN),
    (re.compile(r"(://[^:/@\s'\"\\]*:)[^@/\s'\"\\]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(bearer|basic) +[^\s'\",\\]+", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\b((?:buyer|csrftoken|link|proof|sessionid|ticket)=)[^;&\s'\"\\]+"), r"\1" + HIDDEN),
    # Buyers' tokens and tickets: the signature, after a number or a buyer.
    (re.compile(r"((?:\.[0-9]{1,20}|[\w-]{22})\.)[\w-]{22}(?![\w-])", re.ASCII), r"\1" + HIDDEN),
    (re.compile(r"\b(v1=)[0-9a-f]{64}"), r"\1" + HIDDEN),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), f"{HIDDEN}@{HIDDEN}"),
]


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


def hide_secret_fields(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hide the value of every field whose name says that it is a secret, in fields of fields too."""
    for name, value in event.items():
        if isinstance(value, dict):
            event[name] = hide_secret_fields(None, "", dict(value))
        elif isinstance(value, str | bytes) and SECRET_FIELD.search(name):
            event[name] = HIDDEN
    return event


class HideSecrets:
    """Hides in a finished line what SECRET_TEXTS finds, and the secrets of this shop. secrets: those, in clear."""

    def __init__(self, secrets: Iterable[str]) -> None:
        own = sorted({re.escape(secret) for secret in secrets if len(secret) >= MIN_SECRET_LENGTH}, key=len)
        self._own = re.compile("|".join(reversed(own)) or "(?!)")

    def __call__(self, _logger: Any, _method: str, line: str) -> str:
        """Return the line without secrets."""
        line = self._own.sub(HIDDEN, line)
        for pattern, shown in SECRET_TEXTS:
            line = pattern.sub(shown, line)
        return line


SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    drop_client_traceback,
    structlog.processors.format_exc_info,
    hide_secret_fields,
]
# One list for all loggers, also after another configuration: structlog's capture_logs changes it in place.
PROCESSORS = [*SHARED_PROCESSORS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter]


def logging_config(*, level: str, as_json: bool, secrets: Iterable[str] = ()) -> dict[str, Any]:
    """Return a dictConfig for `level` (a logging level name); also configures structlog itself.

    secrets: what no line may have in it, such as the keys of the settings.
    """
    structlog.configure(
        processors=PROCESSORS,
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
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    renderer,
                    HideSecrets(secrets),
                ],
                "foreign_pre_chain": SHARED_PROCESSORS,
            }
        },
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "loggers": {
            # That a process begins or ends is told at every level.
            "workers.management": {"level": "INFO"},
            # It brings a handler of its own unless it has one, which would show what is hidden here.
            "post_office": {"handlers": ["console"], "level": level, "propagate": False},
        },
        "root": {"handlers": ["console"], "level": level},
    }
