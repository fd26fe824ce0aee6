"""Routes of everything behind the gate; decides nothing; called by Django."""

from django.contrib import admin
from django.urls import path

from shop import api, views

urlpatterns = [
    path("", views.sale_list, name="sales"),
    path("sales/<slug:slug>/", views.sale, name="sale"),
    path("requests/<str:request_id>/", views.ticket, name="ticket"),
    path("admin/", admin.site.urls),
    path("api/v1/sales/<slug:slug>/audit", api.sale_audit, name="sale-audit"),
    path("api/<path:rest>", api.unknown_address),
    path("readyz", api.readiness, name="readyz"),
]

handler404 = "shop.views.page_not_found"
handler500 = "shop.views.server_error"
