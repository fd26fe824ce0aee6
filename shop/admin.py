"""Lets staff set up products and sales; the rest of the shop's admin is registered alongside it. Never writes stock."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from inventory.exceptions import Unavailable
from shop.models import Product, Sale
from shop.sales import catalogue
from shop.staff import orders as orders  # registers itself
from shop.staff import sale_control
from shop.staff.actions import ACTS, action_for
from shop.staff.control_room import ControlRoom
from shop.web.sale_presenter import picture_url

# Keys and recovery codes are nobody's to read or to type in, not even a superuser's: manage.py second_factor resets.
admin.site.unregister([TOTPDevice, StaticDevice])
admin.site.site_header = "Fairdrop"
admin.site.site_title = "Fairdrop"
admin.site.index_title = "Control room"
admin.site.index_template = "admin/shop/index.html"


class ProductForm(forms.ModelForm):  # type: ignore[type-arg]
    """A picture is named by its path, so the form looks whether it is there."""

    def clean_picture(self) -> str:
        """Return the path. Raises ValidationError when no page could show it."""
        path: str = self.cleaned_data["picture"]
        if path and not picture_url(path):
            raise forms.ValidationError(
                f"There is no picture at {path}. Name a file under static/, like shop/products/lantern.svg."
            )
        return path


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


class SaleForm(forms.ModelForm):  # type: ignore[type-arg]
    """A sale always counts the stock of its product, so the form asks for the product only.

    Pausing and closing are acts with a reason (sale_actions.py), no fields of a form that may lie open for an hour.
    """

    seen_version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    class Meta:
        model = Sale
        exclude = ("stock", "switch", "pause_reason")  # noqa: DJ006 - every other field is meant to be set by staff

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["seen_version"] = self.instance.revision

    def clean(self) -> dict[str, Any]:
        """Give the sale its stock before the database's own rules (no overlap) are checked."""
        data = super().clean() or self.cleaned_data
        opens, closes = data.get("opens_at"), data.get("closes_at")
        if opens and closes and closes <= opens:
            # An error of the field: without it PostgreSQL would be asked about a range that ends before it begins.
            self.add_error("closes_at", "The sale must close after it opens.")
        if self.instance.retired_at is not None:
            raise forms.ValidationError("This sale is retired; nothing about it can be changed.")
        if self.instance._state.adding and (product := data.get("product")):
            self.instance.stock = product.stock
        elif not self.instance._state.adding and data.get("seen_version") != self.instance.revision:
            raise forms.ValidationError(
                "This sale was changed after you had opened this page, so nothing was saved. "
                "Load the page again and look at the new values first."
            )
        return data

    def _get_validation_exclusions(self) -> set[str]:
        # Django leaves out fields that are not in the form; the overlap rule needs the stock once it is known.
        left_out: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]
        return left_out - {"stock"} if self.instance.stock_id else left_out


@admin.register(Sale)
class SaleAdmin(ControlRoom):
    """When, at what price, how many a person. A sale is closed, never deleted: its orders stay explained."""

    form = SaleForm
    list_display = (
        "slug",
        "title",
        "stock",
        "state",
        "opens_at",
        "closes_at",
        "price",
        "per_buyer_limit",
        "room_link",
        "audit_link",
    )
    actions = tuple(action_for(name) for name in ACTS)
    list_select_related = ("stock",)
    list_filter = ("switch", "opens_at", ("retired_at", admin.EmptyFieldListFilter))
    search_fields = ("slug", "title", "stock__sku")
    date_hierarchy = "opens_at"

    @admin.display(description="state")
    def state(self, obj: Sale) -> str:
        return "retired" if obj.retired_at else obj.state_at(timezone.now())

    def get_readonly_fields(self, request: HttpRequest, obj: Sale | None = None) -> tuple[str, ...]:
        return ("product", "stock", "slug", "switch", "pause_reason") if obj else ()

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
        super().save_model(request, obj, form, change)
        if change:
            sale_control.note_change(obj, actor=request.user.get_username(), fields=form.changed_data)
        transaction.on_commit(lambda: self.prime(request, slug=obj.slug))

    def prime(self, request: HttpRequest, *, slug: str) -> None:
        """Prepare the line of the sale; staff are told when it could not be reached."""
        try:
            catalogue.prime_sale(slug)
        except Unavailable:
            text = "Saved, but the line could not be reached: save again once it answers, or buyers see the old sale."
            self.message_user(request, text, level=messages.WARNING)
