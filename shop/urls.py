"""Routes of everything behind the gate; decides nothing; called by Django."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import path
from django.utils.functional import lazy
from django.views.generic import RedirectView

from shop import api, views

# Looked up when asked for: the name has a fingerprint in it that only a collected static folder knows.
FAVICON = lazy(static, str)("shop/favicon.svg")

urlpatterns = [
    path("", views.sale_list, name="sales"),
    path("sales/<slug:slug>/", views.sale, name="sale"),
    path("requests/<str:request_id>/", views.ticket, name="ticket"),
    path("admin/", admin.site.urls),
    path("api/v1/sales/<slug:slug>/audit", api.sale_audit, name="sale-audit"),
    path("favicon.ico", RedirectView.as_view(url=FAVICON)),
    path("api/<path:rest>", api.unknown_address),
    path("readyz", api.readiness, name="readyz"),
]

handler404 = "shop.views.page_not_found"
handler500 = "shop.views.server_error"
