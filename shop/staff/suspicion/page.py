"""Shows staff what of a sale may belong together, and leads to the acts on it. Never acts, and never judges."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext, gettext_lazy

from shop.models import Sale
from shop.staff.suspicion import clusters
from shop.staff.suspicion.clusters import Cluster, Kind

VOID_RIGHT, REVOKE_RIGHT = "shop.void_order", "shop.revoke_network"
# What each kind may also mean: nobody is a robber for it.
MEANINGS = {
    Kind.NETWORK: gettext_lazy(
        "A network is a /24 of IPv4 or a /48 of IPv6, shown by a mark. Families, offices, schools and mobile providers "
        "share one."
    ),
    Kind.TIMING: gettext_lazy(
        "Each press came at most %(n)s ms after the one before. People do not press so fast; an office that waits for "
        "the same opening may."
    ),
    Kind.CARD: gettext_lazy("The payment provider says that one card paid for several buyers. A family may share one."),
    Kind.MAIL: gettext_lazy(
        "Several buyers gave one mailbox, written in different ways: capital letters, dots, and what follows a plus "
        "sign do not count."
    ),
}


class SuspicionPage(admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin of sales with one page more, for those who may void orders."""

    def get_urls(self) -> list[URLPattern]:
        page = path("<int:sale_id>/suspicion/", self.admin_site.admin_view(self.suspicion), name="shop_sale_suspicion")
        return [page, *super().get_urls()]

    def suspicion(self, request: HttpRequest, sale_id: int) -> HttpResponse:
        """Show the clusters of a sale. Raises PermissionDenied without the right to void orders."""
        sale: Sale = self.viewed_sale(request, sale_id)  # type: ignore[attr-defined]
        if not request.user.has_perm(VOID_RIGHT):
            raise PermissionDenied
        found = {kind: clusters.find_clusters(sale.pk, kind) for kind in Kind}
        orders = clusters.orders_of([each for group in found.values() for each in group])
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("Clusters of %(sale)s") % {"sale": sale.slug},
            "sale": sale,
            "groups": [_group(kind, group, orders=orders) for kind, group in found.items()],
            "unknown": clusters.unknown_networks(sale.pk),
            "revoked": sale.revoked_networks.split(),
            "may_revoke": request.user.has_perm(REVOKE_RIGHT),
            "most": clusters.MAX_CLUSTERS,
        }
        return TemplateResponse(request, "admin/shop/suspicion/page.html", context)


def _group(kind: Kind, group: list[Cluster], *, orders: dict[int, clusters.ClusterOrder]) -> dict[str, Any]:
    return {
        "kind": kind,
        "meaning": MEANINGS[kind] % {"n": clusters.BURST_MS} if kind is Kind.TIMING else MEANINGS[kind],
        "clusters": [(each, [orders[pk] for pk in each.order_ids if pk in orders]) for each in group],
    }
