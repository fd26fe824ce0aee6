"""Lets staff set up products and sales; the rest of the shop's admin is registered alongside it.
Never changes units that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy
from django_otp.plugins.otp_static import admin as otp_static  # registers what is taken back below
from django_otp.plugins.otp_totp import admin as otp_totp
from post_office import admin as mail_pages

from shop.accounts import people as people  # registers itself
from shop.accounts import sessions
from shop.accounts.forms import is_own_password
from shop.models import Product, Sale
from shop.staff import orders as orders  # registers itself
from shop.staff import sale_control
from shop.staff.actions import ACTS, action_for
from shop.staff.control_room import ControlRoom
from shop.staff.lists.sale_list import SALE_COLUMNS, OperatorStateFilter
from shop.staff.sale_form import NEW_PRODUCT, NewSaleForm, SaleForm
from shop.staff.setup.codes_page import CodesPage
from shop.staff.setup.list_page import ListPage
from shop.staff.setup.pictures import PictureAdmin, ProductAdmin
from shop.staff.setup.preview import Previews
from shop.staff.setup.terms import TERMS, keep_terms, keeps_terms

# A mail has its buyer's address and secret link, which staff never see.
admin.site.unregister([mail_pages.Email, mail_pages.Log, mail_pages.EmailTemplate, mail_pages.Attachment])
# Keys and recovery codes are nobody's to read or to type in, not even a superuser's: manage.py second_factor resets.
admin.site.unregister([otp_totp.TOTPDevice, otp_static.StaticDevice])
admin.site.site_header = "Fairdrop"
admin.site.site_title = "Fairdrop"
admin.site.index_title = gettext_lazy("Control room")
admin.site.index_template = "admin/shop/index.html"

# What a sale has of its own beyond the terms that can be kept under a name; another sale may begin with it all.
OF_THE_SALE = ("per_network_limit", "pass_mode", "pass_rush", "codes_required", "email_mode", "ships")
COPIED = ("title", "title_zh", *TERMS, *OF_THE_SALE)


def makes_products(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Say whether `user` may bring a new product with its first units into the shop."""
    return user.has_perms(("shop.add_product", "shop.change_stock"))  # type: ignore[union-attr]


admin.site.register(Product, ProductAdmin)


@admin.register(Sale)
class SaleAdmin(Previews, CodesPage, ListPage, PictureAdmin, ControlRoom):
    """When, at what price, how many a person. A sale is closed, never deleted: its orders stay explained."""

    class Media:
        css = {"all": ["shop/admin/live.css"]}

    form = SaleForm
    list_display = SALE_COLUMNS
    list_display_links = None
    ordering = ("-opens_at", "slug")
    actions = tuple(action_for(name) for name in ACTS)
    list_select_related = ("stock",)
    list_per_page = 25  # the revenue of each is added up from its orders
    list_filter = (OperatorStateFilter, "opens_at", ("retired_at", admin.EmptyFieldListFilter))
    search_fields = ("slug", "title", "stock__sku")
    date_hierarchy = "opens_at"

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Take the filters of the list alone: of any other column, as of the request key, letters could be guessed."""
        return lookup == OperatorStateFilter.parameter_name or lookup.split("__")[0] in ("opens_at", "retired_at")

    @admin.display(description=gettext_lazy("more"))
    def more(self, obj: Sale) -> str:
        """Return the ways to its form, its audit, and the form of a new sale with the same terms."""
        # A box is ticked by any text that its address has, and an empty limit is the default; 0 is neither.
        values = {name: getattr(obj, name) for name in COPIED}
        same = {name: value for name, value in values.items() if value is not False and value is not None}
        query = urlencode(same | {"product": obj.product_id})
        change, audit = (reverse(f"admin:shop_sale_{name}", args=[obj.pk]) for name in ("change", "audit"))
        links = '<a href="{}">{}</a> · <a href="{}">{}</a><br><a href="{}?{}">{}</a>'
        new = reverse("admin:shop_sale_add")
        return format_html(links, change, gettext("edit"), audit, gettext("audit"), new, query, gettext("duplicate"))

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, *args: Any, **named: Any
    ) -> HttpResponse:
        """As Django's, which begins a transaction."""
        password = request.POST.get("password") if object_id is None and makes_products(request.user) else ""
        if password and not sessions.has_fresh_password(request.session):
            is_own_password(request, password)
        return super().changeform_view(request, object_id, *args, **named)

    def get_readonly_fields(self, request: HttpRequest, obj: Sale | None = None) -> tuple[str, ...]:
        return ("product", "stock", "slug", "operator_state", "pause_reason") if obj else ()

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the address gives; an old bookmark has "room" for the line capacity."""
        given = super().get_changeform_initial_data(request)
        return {"line_capacity": given["room"], **given} if "room" in given else given

    def get_prepopulated_fields(self, request: HttpRequest, obj: Sale | None = None) -> dict[str, Sequence[str]]:
        return {} if obj else {"slug": ("title",)}

    def get_fieldsets(self, request: HttpRequest, obj: Sale | None = None) -> Any:
        terms = (*TERMS, "keep_terms_as") if keeps_terms(request.user) else TERMS
        if obj is not None or not makes_products(request.user):
            left_out = {"keep_terms_as"} - {*terms}
            ((name, options),) = super().get_fieldsets(request, obj)
            return ((name, {**options, "fields": [each for each in options["fields"] if each not in left_out]}),)
        new = (*NEW_PRODUCT, "password")
        return (
            (None, {"fields": ("title", "title_zh", "slug", "product")}),
            (
                gettext("A new product"),
                {"fields": new, "description": gettext("Only when no product is chosen above.")},
            ),
            (gettext("Terms"), {"fields": (*terms, *OF_THE_SALE)}),
            (gettext("Window"), {"fields": ("opens_at", "public_at", "closes_at", "seen_version")}),
        )

    def get_form(self, request: HttpRequest, obj: Sale | None = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None and makes_products(request.user):
            kwargs["form"] = type("NewSaleForm", (NewSaleForm,), {"request": request})
        return super().get_form(request, obj, change, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Sale | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Sale, form: Any, change: bool) -> None:
        """Save, and tell the line once the database has it."""
        actor = request.user.get_username()
        if not change and form.cleaned_data["product"] is None:
            obj.product = form.make_product(actor=actor)
            obj.stock = obj.product.stock
            self.keep_picture(request, obj.product, form=form)
        super().save_model(request, obj, form, change)
        name = form.cleaned_data.get("keep_terms_as")
        if name and keeps_terms(request.user):
            keep_terms(obj, name=name, user=request.user)
        if change:
            fields = [each for each in form.changed_data if each != "keep_terms_as"]
            changes = [(each, form.initial.get(each), form.cleaned_data[each]) for each in fields]
            # A field that was left empty may stand for what the sale has already.
            sale_control.note_change(obj, actor=actor, changes=[each for each in changes if each[1] != each[2]])
        transaction.on_commit(lambda: self.prime(request, slug=obj.slug))

    def prime(self, request: HttpRequest, *, slug: str) -> None:
        """Prepare the line of the sale; staff are told when it could not be reached."""
        if not sale_control.tell_line(slug):
            text = gettext(
                "Saved, but the line could not be reached: save again once it answers, or buyers see the old sale."
            )
            self.message_user(request, text, level=messages.WARNING)
