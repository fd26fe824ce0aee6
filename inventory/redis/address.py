"""Reads the address of a Redis that is more than one server: Sentinel or Cluster. Never opens a connection.
A plain redis:// address is left to the library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from django.core.exceptions import ImproperlyConfigured

FORM = re.compile(
    r"redis(?P<tls>s?)\+(?P<kind>sentinel|cluster)://(?:(?P<user>[^:@/]*):(?P<password>[^@/]*)@)?(?P<nodes>[^@/?]+)"
    r"(?:/(?P<service>[^/?]+)(?:/(?P<database>\d+))?)?/?(?:\?sentinel_password=(?P<sentinel_password>[^&]+))?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the servers are. service: the name Sentinel watches them by, '' for a Cluster; tls: to all of them."""

    nodes: tuple[tuple[str, int], ...]
    service: str
    database: int
    username: str | None
    password: str | None
    tls: bool = False
    sentinel_password: str | None = None


def read_address(url: str) -> Address | None:
    """Return what a redis+sentinel:// or redis+cluster:// address says, None for any other; rediss+…:// means TLS.

    redis+sentinel://:password@host:port,host:port/service/0?sentinel_password=…
    redis+cluster://:password@host:port,host:port
    The password before the hosts is that of the servers. Raises ImproperlyConfigured, without the address in it.
    """
    if not url.startswith(("redis+", "rediss+")):
        return None
    form = FORM.fullmatch(url)
    watched = form is not None and form["kind"] == "sentinel"
    if form is None or bool(form["service"]) != watched or (form["sentinel_password"] and not watched):
        raise ImproperlyConfigured(
            "REDIS_URL must be redis+sentinel://[:password@]host:port,…/service[/db][?sentinel_password=…] "
            "or redis+cluster://[:password@]host:port,…"
        )
    return Address(
        nodes=tuple(_node(text) for text in form["nodes"].split(",")),
        service=form["service"] or "",
        database=int(form["database"] or 0),
        username=unquote(form["user"]) if form["user"] else None,
        password=unquote(form["password"]) if form["password"] else None,
        tls=bool(form["tls"]),
        sentinel_password=unquote(form["sentinel_password"]) if form["sentinel_password"] else None,
    )


def _node(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ImproperlyConfigured("every server in REDIS_URL must be host:port")
    return host.strip("[]"), int(port)
