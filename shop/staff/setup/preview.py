"""The page of a sale as buyers will see it, from what stands in its form: on a phone and on a desk, before it is saved.
Never writes anything, and its page has no script and takes no press.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext

from shop.models import Product, Sale
from shop.sales.catalogue import CARD_FIELDS, OF_OTHER_ROWS, SaleCard
from shop.staff.setup.pictures import encode_first
from shop.staff.setup.terms import kept_terms
from shop.web.pages import show
from shop.web.sale_presenter import SaleFace

# The picture of the form is in the page itself: it is kept nowhere yet.
POLICY = "; ".join(
    f"{name} {' '.join(sources)}"
    for name, sources in {**settings.CONTENT_POLICY, "img-src": ["'self'", "data:"]}.items()
)


@dataclass(frozen=True)
class PreviewFace(SaleFace):
    """A sale that is not saved. upload: a picture that is not kept, as WebP."""

    upload: bytes = b""

    @property
    def picture_url(self) -> str:
        if self.upload:
            return f"data:image/webp;base64,{b64encode(self.upload).decode()}"
        return super().picture_url


class Previews(admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin of sales with a preview of the form, and with the terms that a new sale may begin with."""

    change_form_template = "admin/shop/sale/change_form.html"

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path("add/preview/", wrap(self.preview), name="shop_sale_preview_new"),
            path("<int:sale_id>/preview/", wrap(self.preview), name="shop_sale_preview"),
        ]
        return [*own, *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **named: Any
    ) -> HttpResponse:
        """Offer the kept terms to a new sale."""
        if named.get("add") and request.user.has_perm("shop.view_termstemplate"):
            context["kept_terms"] = kept_terms()
        return super().render_change_form(request, context, *args, **named)

    def preview(self, request: HttpRequest, sale_id: int | None = None) -> HttpResponse:
        """Show the page of the sale in the form that was sent, or what is wrong with the form."""
        sale = None if sale_id is None else Sale.objects.filter(pk=sale_id).first()
        if sale_id is not None and sale is None:
            raise Http404
        if not (self.has_add_permission(request) if sale is None else self.has_change_permission(request, sale)):
            raise PermissionDenied
        if request.method != "POST":  # its address alone, of a bookmark: nothing was filled in
            return HttpResponseRedirect("../" if sale is None else "../change/")
        form = self.get_form(request, sale, change=sale is not None)(request.POST, request.FILES, instance=sale)
        form.fields.pop("password", None)  # nothing is changed
        encode_first(request)
        with transaction.atomic():
            is_valid = form.is_valid()
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Preview"),
            "opts": self.opts,
            "page": _page(request, form) if is_valid else "",
            "errors": [(form[name].label if name in form.fields else "", each) for name, each in form.errors.items()],
        }
        answer = TemplateResponse(request, "admin/shop/sale/preview.html", context)
        answer["Content-Security-Policy"] = POLICY
        return answer


def _page(request: HttpRequest, form: ModelForm[Any]) -> str:
    now = timezone.now()
    face = PreviewFace(card=_card(form), now=now, upload=form.cleaned_data.get("upload") or b"")
    context = {"face": face, "now": now, "quantity": 1, "idempotency_key": ""}
    return show(request, "shop/sale.html", context).content.decode()


def _card(form: ModelForm[Any]) -> SaleCard:
    """Return the sale of a valid form as the catalogue would."""
    sale: Sale = form.instance
    data = form.cleaned_data
    product = data.get("product") or (sale.product if sale.product_id else None) or new_product(data)
    rows = SimpleNamespace(product=product, stock=product.stock if product.pk else _new_stock(data))
    of_others = {name: attrgetter(path.replace("__", "."))(rows) for name, path in OF_OTHER_ROWS.items()}
    no_columns: dict[str, Any] = {"sale_id": sale.pk or 0, "next_lapse_at": None}
    of_sale = {name: getattr(sale, name) for name in CARD_FIELDS if name not in {*of_others, *no_columns}}
    return SaleCard(**of_sale, **of_others, **no_columns)


def new_product(data: dict[str, Any]) -> Product:
    """Return the product that the form would make, with no row and no stock."""
    list_price = data["price"] if data["list_price"] is None else data["list_price"]
    texts = ("tagline", "tagline_zh", "description", "description_zh", "picture")
    named = {name: data[name] for name in texts}
    return Product(slug=data["sku"], title=data["title"], list_price=list_price, **named)


def _new_stock(data: dict[str, Any]) -> SimpleNamespace:
    """Return what the catalogue would read of its stock."""
    units = data["units"]
    return SimpleNamespace(sku=data["sku"], total=units, available=units, held=0, sold=0, version=0, fence=0)
