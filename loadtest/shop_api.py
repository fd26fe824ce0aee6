"""Asks the shop the few things a flood needs alongside the crowd: which sales there are, and their audit.
Never waits longer than its timeout and never touches a host that is not this machine unless told to.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
from typing import Any
from urllib.parse import quote, urlsplit

TIMEOUT_SECONDS = 30.0


class ShopError(Exception):
    """The shop cannot be flooded as asked; the text is one sentence for the operator."""


class NotThere(ShopError):
    """The shop has nothing at this address."""


def is_loopback(host_url: str) -> bool:
    """Say whether this address can only be this machine."""
    name = urlsplit(host_url).hostname or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_host(host_url: str, *, remote: bool) -> None:
    """Raise ShopError unless this is a whole http address that may be flooded."""
    parts = urlsplit(host_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ShopError(f"{host_url!r} is no address of a shop: it should look like http://127.0.0.1:8000.")
    if not remote and not is_loopback(host_url):
        raise ShopError(f"{parts.hostname} is not this machine; if you may flood it, say so with --allow-remote.")


class ShopApi:
    """The shop at one address, asked one plain question at a time."""

    def __init__(self, host_url: str, *, audit_token: str = "", timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.host_url = host_url.rstrip("/")
        self._audit_token = audit_token
        self._timeout_seconds = timeout_seconds

    def sales(self) -> list[dict[str, Any]]:
        """Return every sale the shop lists."""
        answer = self._get("/api/v1/sales")
        found = answer.get("sales", []) if isinstance(answer, dict) else answer
        return [sale for sale in found if isinstance(sale, dict)]

    def sale(self, slug: str) -> dict[str, Any]:
        """Return one sale."""
        return dict(self._get(f"/api/v1/sales/{quote(slug)}"))

    def audit(self, slug: str) -> dict[str, Any]:
        """Return the shop's own audit of one sale."""
        return dict(self._get(f"/api/v1/sales/{quote(slug)}/audit", token=self._audit_token))

    def about(self) -> dict[str, Any]:
        """Return what the shop says of its versions and of how its stores keep data."""
        return dict(self._get("/api/v1/about", token=self._audit_token))

    def open_sales(self, wanted: list[str]) -> dict[str, dict[str, Any]]:
        """Return the wanted sales (or all open ones) by slug; raise ShopError if one of them is not open."""
        if not wanted:
            found = {str(sale["slug"]): sale for sale in self.sales() if sale.get("state") == "open"}
            if not found:
                raise ShopError(f"No sale is open at {self.host_url}: open one, or wait until one opens.")
            return found
        found = {slug: self.sale(slug) for slug in wanted}
        for slug, sale in found.items():
            if sale.get("state") != "open":
                raise ShopError(f"Sale {slug} is {sale.get('state')}, not open: there is nothing to flood.")
        return found

    def fetch(self, path: str) -> bytes:
        """Return what is at `path` for anybody."""
        return self._get_bytes(path, token="")

    def _get(self, path: str, *, token: str = "") -> Any:
        body = self._get_bytes(path, token=token)
        try:
            return json.loads(body)
        except ValueError as error:
            raise ShopError(f"GET {path} at {self.host_url} was not answered with JSON.") from error

    def _get_bytes(self, path: str, *, token: str) -> bytes:
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            status, body = self._exchange(path, headers=headers)
        except (OSError, http.client.HTTPException) as error:
            raise ShopError(f"No shop answers at {self.host_url} ({error or type(error).__name__}).") from error
        if status == http.HTTPStatus.NOT_FOUND and not token:
            raise NotThere(f"{self.host_url}{path} does not exist: is that the slug of a sale of this shop?")
        if status != http.HTTPStatus.OK:
            hint = " (is the audit token right?)" if path.endswith("/audit") and status in (401, 403, 404) else ""
            raise ShopError(f"GET {path} at {self.host_url} was answered with {status}{hint}.")
        return body

    def _exchange(self, path: str, *, headers: dict[str, str]) -> tuple[int, bytes]:
        parts = urlsplit(self.host_url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self._timeout_seconds)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
