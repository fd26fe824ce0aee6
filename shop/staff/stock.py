"""The live table of stock in the admin: page, JSON for its module, CSV. Never changes anything.
shop/urls.py puts it under the admin's own check of who is staff.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext

from shop.staff.lists import csv_export
from shop.staff.stock_rows import COLUMNS, FILTERS, StockPage, StockRow, read_stock

LIVE_SECONDS = 2
MAX_SEARCH_LENGTH = 40


def stock_live(request: HttpRequest) -> HttpResponse:
    """Show the table; ?q= part of a SKU, ?state= a filter, ?p= page, ?format=json or csv, ?watch=1 without script."""
    if not request.user.has_perm("inventory.view_stock"):
        raise PermissionDenied
    chosen = {"q": request.GET.get("q", "")[:MAX_SEARCH_LENGTH].strip(), "state": request.GET.get("state", "")}
    if chosen["state"] not in FILTERS:
        chosen["state"] = ""
    wanted = request.GET.get("format", "")
    found = read_stock(search=chosen["q"], state=chosen["state"], number=request.GET.get("p", 1), whole=wanted == "csv")
    if wanted == "csv":
        return _csv(found.rows)
    if wanted == "json":
        return _json(found)
    return _page(request, found, chosen)


def _page(request: HttpRequest, found: StockPage, chosen: dict[str, str]) -> HttpResponse:
    query = {name: value for name, value in chosen.items() if value}
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": gettext("Live stock"),
        "body": _body(found),
        "found": found,
        "chosen": chosen,
        "filters": [_filter(name, query=query) for name in FILTERS],
        "query": urlencode(query),
        "watched": "watch" in request.GET,
        "at": timezone.now(),
    }
    answer = TemplateResponse(request, "admin/inventory/stock/live.html", context)
    if "watch" in request.GET:
        answer["Refresh"] = str(LIVE_SECONDS)
    return answer


def _filter(name: str, *, query: dict[str, str]) -> tuple[str, str, bool]:
    """Return a filter's text, the query that chooses it, and whether it is chosen."""
    others = {key: value for key, value in query.items() if key != "state"}
    chosen = urlencode({**others, "state": name} if name else others)
    return gettext(FILTERS[name]), chosen, query.get("state", "") == name


def _body(found: StockPage) -> str:
    return render_to_string("admin/inventory/stock/live_rows.html", {"rows": found.rows})


def _json(found: StockPage) -> JsonResponse:
    said = {
        "at": timezone.localtime().strftime("%H:%M:%S"),
        "error": found.redis_error,
        "parts": {"rows": _body(found)},
        "rows": [row.cells() for row in found.rows],
    }
    return JsonResponse(said)


def _csv(rows: list[StockRow]) -> HttpResponse:
    parts = csv_export.csv_parts(COLUMNS, (row.cells().values() for row in rows))
    answer = HttpResponse(b"".join(parts), content_type=csv_export.CONTENT_TYPE)
    answer["Content-Disposition"] = csv_export.disposition("stock")
    return answer
