"""Checks the arguments of locks and queues (S16): a bad one is logged, and raised with its name and its bound.
Never asks a server and never repairs an argument, except that a number given as an id becomes its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

import structlog

from inventory.exceptions import InvalidRequest
from inventory.redis import Client, is_ours, keys

log = structlog.get_logger(__name__)

MAX_SECONDS = 366 * 24 * 3600
MAX_MS = MAX_SECONDS * 1000
# Lua counts exactly up to here.
HIGHEST_WHOLE = 2**53 - 1
ID_PATTERN = re.compile(r"\S{1,200}")
MAX_TEXT_LENGTH = 1_000_000


def refused(argument: str, rule: str, value: object, **whose: str) -> InvalidRequest:
    """Log a bad argument and return the error that names it. whose: lock= or queue= and its name."""
    try:
        detail = f"{argument} {rule}, got {value!r:.200}"
    except Exception:  # a repr() of others may fail, as that of a very large number does
        detail = f"{argument} {rule}, got a {type(value).__name__} that cannot be shown"
    log.warning("bad argument", action="argument_refused", argument=argument, reason=detail, **whose)
    return InvalidRequest(detail)


def checked_name(name: str) -> str:
    """Return the name of a lock or a queue. A brace in it would break the hash tag of its keys (L22)."""
    if not isinstance(name, str) or not keys.NAME_PATTERN.fullmatch(name):
        raise refused("name", f"must match {keys.NAME_PATTERN.pattern}", name)
    return name


def checked_number(value: float, *, argument: str, minimum: float, maximum: float, **whose: str) -> float:
    """Return a number from `minimum` to `maximum`; bool, NaN and numbers in a text are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise refused(argument, f"must be at least {minimum:g} and at most {maximum:.12g}", value, **whose)
    return value


def checked_whole(value: int, *, argument: str, minimum: int, maximum: int, **whose: str) -> int:
    """Return a whole number from `minimum` to `maximum`."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise refused(argument, f"must be a whole number, at least {minimum} and at most {maximum}", value, **whose)
    return value


def checked_flag(value: bool, *, argument: str, **whose: str) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise refused(argument, "must be True or False", value, **whose)
    return value


def checked_call(value: Callable[..., object] | None, *, argument: str, **whose: str) -> None:
    """Accept a function or None."""
    if value is not None and not callable(value):
        raise refused(argument, "must be a function or None", value, **whose)


def checked_text(value: str, *, argument: str, minimum: int = 0, maximum: int = MAX_TEXT_LENGTH, **whose: str) -> str:
    """Return a text of `minimum` to `maximum` characters that can be sent as UTF-8."""
    if not isinstance(value, str) or not minimum <= len(value) <= maximum or not _is_utf8(value):
        raise refused(argument, f"must be a text of {minimum} to {maximum} characters", value, **whose)
    return value


def checked_id(value: str | int, *, argument: str, **whose: str) -> str:
    """Return an id as text: 1 to 200 characters without spaces, or a whole number."""
    text = str(value) if type(value) is int and abs(value) <= HIGHEST_WHOLE else value
    if not isinstance(text, str) or not ID_PATTERN.fullmatch(text) or not _is_utf8(text):
        raise refused(argument, "must be 1 to 200 characters without spaces, or a whole number", value, **whose)
    return text


def checked_ids(values: Iterable[str | int], *, argument: str, **whose: str) -> list[str]:
    """Return several ids as text; all at once, because a call may have a thousand."""
    ids: list[Any] = list(values)
    try:
        if all(map(ID_PATTERN.fullmatch, ids)) and _is_utf8("".join(ids)):
            return ids
    except TypeError:  # one is no text
        pass
    return [checked_id(value, argument=argument, **whose) for value in ids]


def check_texts(values: Collection[str], *, argument: str, **whose: str) -> None:
    """Accept texts, as checked_text does each."""
    try:
        text = "".join(values)
        if len(text) <= MAX_TEXT_LENGTH and _is_utf8(text):
            return
    except TypeError:  # one is no text
        pass
    for value in values:
        checked_text(value, argument=argument, minimum=0, maximum=MAX_TEXT_LENGTH, **whose)


def checked_client(client: Client, **whose: str) -> Client:
    """Return a client that inventory.redis opened: of another one nobody knows what it repeats and how it answers."""
    if not is_ours(client):
        raise refused("client", "must come from inventory.redis: connect() or connect_once()", client, **whose)
    return client


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is a str that no socket can send
        return False
    return True
