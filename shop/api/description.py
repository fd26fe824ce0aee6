"""GET /api/v1/openapi.json: the contract of docs/api.md for programs, as OpenAPI 3.1.
Never made from the code: tests hold both to it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from django.http import HttpRequest, JsonResponse

from shop.api.views import api_call

FILE = Path(__file__).with_name("openapi.json")


@cache
def description() -> dict[str, Any]:
    """Return the description."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


@api_call("GET", "HEAD")
def openapi(request: HttpRequest) -> JsonResponse:
    """Show the description to anybody."""
    return JsonResponse(description())
