"""GET /api/v1/about: the versions of the shop and its stores, and what the stores do before they call a write safe.
Never guesses: what a store does not tell is null.
"""

from __future__ import annotations

import platform
from typing import Any

import django
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, JsonResponse

from inventory import redis
from inventory.exceptions import Unauthenticated, Unavailable
from shop.api.views import api_call, may_audit

DATABASE_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes")
STORE_SETTINGS = ("appendonly", "appendfsync", "maxmemory-policy")


@api_call("GET", "HEAD")
def about(request: HttpRequest) -> JsonResponse:
    """Tell the holder of the audit token, or staff, what runs here."""
    if not may_audit(request):
        raise Unauthenticated("this is for staff, or for the holder of the audit token")
    return JsonResponse(
        {
            "python": platform.python_version(),
            "django": django.get_version(),
            "environment": settings.ENVIRONMENT,
            "database": _database(),
            "store": _store(),
        }
    )


def _database() -> dict[str, str | None]:
    """Return name, version and settings of the database."""
    names = ("server_version", *DATABASE_SETTINGS)
    found: dict[str, str | None] = dict.fromkeys(names)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(names)])
            found |= dict(cursor.fetchall())
    except (DatabaseError, InterfaceError):
        pass
    version = found.pop("server_version")
    return {"name": "PostgreSQL", "version": version.split()[0] if version else None, **found}


def _store() -> dict[str, str | None]:
    """Return name, version and settings of the Redis or Valkey; many hosted ones do not tell their settings."""
    server = _ask("INFO", "server")
    valkey = server.get("valkey_version")
    # An INFO that names no version at all leaves the name open too.
    name = "Valkey" if valkey else "Redis" if "redis_version" in server else None
    version = valkey or server.get("redis_version")
    found = {setting: _ask("CONFIG", "GET", setting).get(setting) for setting in STORE_SETTINGS}
    return {"name": name, "version": str(version) if version else None, **found}


def _ask(*words: str) -> dict[str, Any]:
    """Return a reply of names and values; nothing when there is none."""
    try:
        (reply,) = redis.run_commands(redis.connect(), [words])
    except Unavailable:
        return {}
    return redis.as_dict(reply)
