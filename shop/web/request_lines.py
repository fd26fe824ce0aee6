"""One line in the log for each request that Django answers: without its query, and with the address of the client as
our own proxies saw it. Never believes an address that the client wrote itself.
"""

from __future__ import annotations

import structlog
from django.http import HttpRequest
from django_structlog.middlewares import RequestMiddleware

from shop.client_address import client_address


class RequestLines(RequestMiddleware):
    """django-structlog's middleware."""

    @classmethod
    def bind_ip(cls, request: HttpRequest) -> None:
        """Let every line of this request have its address as `ip`."""
        structlog.contextvars.bind_contextvars(ip=client_address(request))

    @staticmethod
    def format_request(request: HttpRequest) -> str:
        """Return what the line says of the request."""
        return f"{request.method} {request.path}"
