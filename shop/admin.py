"""Lets staff set up products and sales; the rest of the shop's admin is registered alongside it.
Never changes units that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from inventory.exceptions import Unavailable
from shop.models import Product, Sale
from shop.sales import catalogue
from shop.staff import orders as orders  # registers itself
from shop.staff import sale_control
from shop.staff.actions import ACTS, action_for
from shop.staff.control_room import ControlRoom
from shop.staff.lists.sale_list import SALE_COLUMNS
from shop.staff.sale_form import NEW_PRODUCT, NewSaleForm, SaleForm, check_picture

# Keys and recovery codes are nobody's to read or to type in, not even a superuser's: manage.py second_factor resets.
admin.site.unregister([TOTPDevice, StaticDevice])
admin.site.site_header = "Fairdrop"
admin.site.site_title = "Fairdrop"
admin.site.index_title = "Control room"
admin.site.index_template = "admin/shop/index.html"

# What a sale has in common with the one that it is made from.
COPIED = (
    "title",
    "title_zh",
    "price",
    "currency",
    "per_buyer_limit",
    "per_network_limit",
    "hold_seconds",
    "room",
    "ships",
)


def makes_products(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Say whether `user` may bring a new product with its first units into the shop."""
    return user.has_perms(("shop.add_product", "shop.change_stock"))  # type: ignore[union-attr]


class ProductForm(forms.ModelForm):  # type: ignore[type-arg]
    """A picture is named by its path, so the form looks whether it is there."""

    def clean_picture(self) -> str:
        """Return the path. Raises ValidationError when no page could show it."""
        return check_picture(self.cleaned_data["picture"])


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What is offered; the stock it counts is chosen once."""

    form = ProductForm
    list_display = ("title", "slug", "stock", "list_price")
    list_select_related = ("stock",)
    search_fields = ("title", "slug", "stock__sku")
    ordering = ("title",)

    def get_readonly_fields(self, request: HttpRequest, obj: Product | None = None) -> tuple[str, ...]:
        return ("stock",) if obj else ()


@admin.register(Sale)
class SaleAdmin(ControlRoom):
    """When, at what price, how many a person. A sale is closed, never deleted: its orders stay explained."""

    class Media:
        css = {"all": ["shop/admin/live.css"]}

    form = SaleForm
    list_display = SALE_COLUMNS
    list_display_links = None
    ordering = ("-opens_at", "slug")
    actions = tuple(action_for(name) for name in ACTS)
    list_select_related = ("stock",)
    list_filter = ("switch", "opens_at", ("retired_at", admin.EmptyFieldListFilter))
    search_fields = ("slug", "title", "stock__sku")
    date_hierarchy = "opens_at"

    @admin.display(description="more")
    def more(self, obj: Sale) -> str:
        """Return the ways to its form, its audit, and the form of a new sale with the same terms."""
        # A box is ticked by any text that its address has, and an empty limit is the default.
        same = {name: value for name in COPIED if (value := getattr(obj, name)) not in (False, None)}
        query = urlencode(same | {"product": obj.product_id})
        change, audit = (reverse(f"admin:shop_sale_{name}", args=[obj.pk]) for name in ("change", "audit"))
        links = '<a href="{}">edit</a> · <a href="{}">audit</a><br><a href="{}?{}">duplicate</a>'
        return format_html(links, change, audit, reverse("admin:shop_sale_add"), query)

    def get_readonly_fields(self, request: HttpRequest, obj: Sale | None = None) -> tuple[str, ...]:
        return ("product", "stock", "slug", "switch", "pause_reason") if obj else ()

    def get_prepopulated_fields(self, request: HttpRequest, obj: Sale | None = None) -> dict[str, Sequence[str]]:
        return {} if obj else {"slug": ("title",)}

    def get_fieldsets(self, request: HttpRequest, obj: Sale | None = None) -> Any:
        if obj is not None or not makes_products(request.user):
            return super().get_fieldsets(request, obj)
        return (
            (None, {"fields": ("title", "title_zh", "slug", "product")}),
            ("A new product", {"fields": NEW_PRODUCT, "description": "Only when no product is chosen above."}),
            ("Terms", {"fields": ("price", "currency", "per_buyer_limit", "hold_seconds", "room", "ships")}),
            ("Window", {"fields": ("opens_at", "closes_at", "seen_version")}),
        )

    def get_form(self, request: HttpRequest, obj: Sale | None = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None and makes_products(request.user):
            kwargs["form"] = NewSaleForm
        return super().get_form(request, obj, change, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Sale | None = None) -> bool:
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Sale | None:
        """Lock the row while a form is saved, so that what its version is compared with stays true."""
        if request.method == "POST":
            # Not the key: settlement inserts orders of this sale meanwhile.
            list(Sale.objects.select_for_update(no_key=True).filter(pk=object_id))
        return super().get_object(request, object_id, from_field)

    def save_model(self, request: HttpRequest, obj: Sale, form: Any, change: bool) -> None:
        """Save, and tell the line once the database has it."""
        if not change and form.cleaned_data["product"] is None:
            obj.product = form.make_product(actor=request.user.get_username())
            obj.stock = obj.product.stock
        super().save_model(request, obj, form, change)
        if change:
            changes = [(name, form.initial.get(name), form.cleaned_data[name]) for name in form.changed_data]
            sale_control.note_change(obj, actor=request.user.get_username(), changes=changes)
        transaction.on_commit(lambda: self.prime(request, slug=obj.slug))

    def prime(self, request: HttpRequest, *, slug: str) -> None:
        """Prepare the line of the sale; staff are told when it could not be reached."""
        try:
            catalogue.prime_sale(slug)
        except Unavailable:
            text = "Saved, but the line could not be reached: save again once it answers, or buyers see the old sale."
            self.message_user(request, text, level=messages.WARNING)
