"""Sets structlog up: JSON lines in production, readable ones elsewhere. Never shows tokens, cookies, passwords,
addresses of mail or secret links: they are hidden in every line, also in those of libraries. A fault that comes again
and again fills no disk: from WARNING up one place in the code writes so many lines, and the rest is counted.
"""

from __future__ import annotations

import atexit
import logging
import logging.config
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import structlog

log = structlog.get_logger(__name__)

HIDDEN = "..."
# So many lines of one place in the code, from WARNING up, are written in so many seconds.
REPEATED_LINES, REPEATED_SECONDS = 20, 10.0
MIN_SECRET_LENGTH = 8
# Fields that are never shown, whatever is in them.
SECRET_FIELD = re.compile(
    r"authorization|cookie|password|secret|session|signature|ticket$|token$|credential|challenge$|recovery_code"
    r"|^(?:e?mail|lines|postcode|city|phone)$",
    re.IGNORECASE,
)
# What proves somebody's right, or who somebody is, wherever it stands in a line. No pattern takes a quotation mark or a
# backslash: the line stays what it was, JSON or not.
SECRET_TEXTS = [
    (re.compile(r"(/(?:links|mail/stop)/[^/\s\\]{1,60}/)[^/\s'\"\\]+"), r"\1" + HIDDEN),
    (re.compile(r"(://[^:/@\s'\"\\]*:)[^@/\s'\"\\]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(bearer|basic) +[^\s'\",\\]+", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"\b((?:buyer|csrftoken|csrfmiddlewaretoken|link|otp_token|password|proof|secret|sessionid|ticket)=)"
            r"[^;&\s'\"\\]+"
        ),
        r"\1" + HIDDEN,
    ),
    # Buyers' tokens and tickets of before: the signature, after a number or a buyer.
    (re.compile(r"((?:\.[0-9]{1,20}|[\w-]{22})\.)[\w-]{22}(?![\w-])", re.ASCII), r"\1" + HIDDEN),
    (re.compile(r"\b(fdt2\.)[\w-]+(?:\.[\w-]*)?", re.ASCII), r"\1" + HIDDEN),
    (re.compile(r"\b(v1=)[0-9a-f]{64}"), r"\1" + HIDDEN),
    # Stripe's keys, those of endpoints, and what opens one payment.
    (re.compile(r"\b([sr]k_(?:live|test)_|whsec_)\w+"), r"\1" + HIDDEN),
    (re.compile(r"(_secret_)\w{8,}"), r"\1" + HIDDEN),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), f"{HIDDEN}@{HIDDEN}"),
    # A row that PostgreSQL refused, to the end of its line: it may be somebody's address. A quotation mark that is
    # escaped belongs to it.
    (re.compile(r"(Failing row contains )(?:[^\"\\]|\\[^n])+"), r"\1" + HIDDEN),
]


class Bounded(logging.Filter):
    """Lets `limit` lines of one place in the code pass in `seconds`, and then says how many it left out.

    Below WARNING everything passes. It also says so when the process ends. Used by any thread.
    """

    def __init__(self, *, limit: int = REPEATED_LINES, seconds: float = REPEATED_SECONDS) -> None:
        super().__init__()
        self._limit = limit
        self._seconds = seconds
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}  # until when, how many
        self._left_out: Counter[tuple[str, str]] = Counter()
        self._reporter: threading.Timer | None = None
        atexit.register(self.report)

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether this line is written."""
        if record.levelno < logging.WARNING or record.name == __name__:
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        with self._lock:
            until, lines = self._seen.get(place, (0.0, 0))
            if now >= until:
                until, lines = now + self._seconds, 0
            self._seen[place] = until, lines + 1
            if lines < self._limit:
                return True
            said = record.msg
            about = said.get("action") or said.get("event") if isinstance(said, dict) else said
            self._left_out[record.name, str(about)[:100]] += 1
            self._report_later()
        return False

    def _report_later(self) -> None:
        if self._reporter is None:
            self._reporter = threading.Timer(self._seconds, self.report)
            self._reporter.daemon = True
            with suppress(RuntimeError):  # the process ends, and reports then
                self._reporter.start()

    def report(self) -> None:
        """Write how many lines were left out since the last time."""
        with self._lock:
            left_out, self._left_out, self._reporter = self._left_out, Counter(), None
        for (name, about), lines in left_out.items():
            log.warning("lines left out", action="lines_left_out", of=name, about=about, left_out=lines)


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
        event[name] = _hidden(name, value)
    return event


def _hidden(name: str, value: Any) -> Any:
    if SECRET_FIELD.search(name) and not isinstance(value, int | float | None):
        return HIDDEN
    if isinstance(value, dict):
        return {inner: _hidden(str(inner), each) for inner, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden("", each) for each in value]
    return value


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
    if as_json:
        logging.captureWarnings(True)
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
        "filters": {"bounded": {"()": Bounded}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "lines", "filters": ["bounded"]}},
        "loggers": _loggers(level),
        "root": {"handlers": ["console"], "level": level},
    }


def _loggers(level: str) -> dict[str, Any]:
    return {
        # That a process begins or ends is told at every level.
        "workers.management": {"level": "INFO"},
        # So is what was deleted for good: nothing else says it afterwards.
        "workers.reconciler.retention": {"level": "INFO"},
        # Django's own handlers would write a line again. Of each request RequestLines writes one.
        "django": {"handlers": [], "level": "NOTSET"},
        "django.server": {"handlers": [], "level": "NOTSET", "propagate": True},
        "django.request": {"level": "CRITICAL"},
        # It brings a handler of its own unless it has one, which would show what is hidden here.
        "post_office": {"handlers": ["console"], "level": level, "propagate": False},
    }


def write_failures() -> None:
    """Let what ends this process, or a thread of it, be a line like any other in production.

    That holds before the settings are read, and when they cannot be. Elsewhere a person reads it, as Python shows it.
    """
    sys.excepthook = _write_failure
    threading.excepthook = lambda what: _write_failure(what.exc_type, what.exc_value, what.exc_traceback)
    sys.unraisablehook = lambda what: _write_failure(what.exc_type, what.exc_value, what.exc_traceback)


def _write_failure(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    # The settings have read .env into it before anything of them can fail.
    if os.environ.get("FAIRDROP_ENV") != "production" or not issubclass(kind, Exception):
        sys.__excepthook__(kind, error or kind(), trace)
        return
    if not logging.getLogger().handlers:
        logging.config.dictConfig(logging_config(level="WARNING", as_json=True))
    failed = error or kind()
    log.critical("ended by an error", action="process_failed", error=repr(failed), exc_info=failed)
