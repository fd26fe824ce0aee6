"""Shows staff the audit of a sale in the admin, once or every two seconds. Never changes anything."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext

from inventory.exceptions import FairdropError
from shop.models import Sale
from shop.names.sentences import findings_in_words, in_words
from shop.sales.audit import audit_sale

WATCH_SECONDS = 2


class AuditPage(admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin of sales with one page more: what the API and `manage.py audit` show."""

    def get_urls(self) -> list[URLPattern]:
        page = path("<int:sale_id>/audit/", self.admin_site.admin_view(self.audit_page), name="shop_sale_audit")
        return [page, *super().get_urls()]

    def audit_page(self, request: HttpRequest, sale_id: int) -> HttpResponse:
        """Show the audit; with ?watch=1 the browser asks again by itself."""
        sale = self.viewed_sale(request, sale_id)
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("Audit of %(name)s") % {"name": sale.slug},
            "sale": sale,
        }
        try:
            context |= {"report": report_in_words(audit_sale(sale.slug)), "watched": "watch" in request.GET}
        except FairdropError as error:
            context |= {"error": in_words(error.detail)}
        answer = TemplateResponse(
            request, "admin/shop/sale/audit.html", context, status=503 if "error" in context else 200
        )
        if "watch" in request.GET:
            answer["Refresh"] = str(WATCH_SECONDS)
        return answer

    def viewed_sale(self, request: HttpRequest, sale_id: int) -> Sale:
        """Return a sale that this user may look at. Raises Http404, PermissionDenied."""
        sale = Sale.objects.select_related("stock", "product").filter(pk=sale_id).first()
        if sale is None:
            raise Http404
        if not self.has_view_permission(request, sale):
            raise PermissionDenied
        return sale


def report_in_words(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report of an audit in the reader's language."""
    counts = {gettext(name): value for name, value in report["counts"].items()}
    return {**report, "counts": counts, "invariants": findings_in_words(report["invariants"])}
