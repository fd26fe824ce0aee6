"""Reads the address of a Redis that is more than one server: Sentinel or Cluster. Never opens a connection.
Called by redis.py; a plain redis:// address is left to the library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from django.core.exceptions import ImproperlyConfigured

FORM = re.compile(
    r"redis\+(?P<kind>sentinel|cluster)://(?:(?P<user>[^:@/]*):(?P<password>[^@/]*)@)?(?P<nodes>[^@/]+)"
    r"(?:/(?P<service>[^/]+)(?:/(?P<database>\d+))?)?/?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the servers are. service: the name Sentinel watches them by, '' for a Cluster."""

    nodes: tuple[tuple[str, int], ...]
    service: str
    database: int
    username: str | None
    password: str | None


def read_address(url: str) -> Address | None:
    """Return what a redis+sentinel:// or redis+cluster:// address says, None for any other.

    redis+sentinel://:password@host:port,host:port/service/0 · redis+cluster://:password@host:port,host:port
    The password is that of the servers, not of the Sentinels. Raises ImproperlyConfigured, without the address in it.
    """
    if not url.startswith("redis+"):
        return None
    form = FORM.fullmatch(url)
    if form is None or bool(form["service"]) != (form["kind"] == "sentinel"):
        raise ImproperlyConfigured(
            "REDIS_URL must be redis+sentinel://[:password@]host:port,…/service[/db] "
            "or redis+cluster://[:password@]host:port,…"
        )
    return Address(
        nodes=tuple(_node(text) for text in form["nodes"].split(",")),
        service=form["service"] or "",
        database=int(form["database"] or 0),
        username=unquote(form["user"]) if form["user"] else None,
        password=unquote(form["password"]) if form["password"] else None,
    )


def _node(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ImproperlyConfigured("every server in REDIS_URL must be host:port")
    return host.strip("[]"), int(port)
