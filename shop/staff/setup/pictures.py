"""The picture of a product in the forms of the admin: a file, or the path of one among the static files.
Never writes a file itself: shop/pictures/keeping.py does, after the commit.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import PermissionDenied
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse
from django.utils.text import format_lazy
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext_noop as _

from shop.models import Product
from shop.names.changes import TellsChanges
from shop.pictures.encoding import MAX_FILE_BYTES, encode_picture
from shop.pictures.keeping import forget_picture, is_kept, name_picture, settle_picture
from shop.web.sale_presenter import picture_url

CHANGED_MEANWHILE = _(
    "This was changed after you had opened this page, so nothing was saved. "
    "Load the page again and look at the new values first."
)


def may_upload(request: HttpRequest) -> HttpResponse:
    """Answer 204 to somebody who may upload a picture or a list: the gate asks before it takes a large body."""
    if not any(map(request.user.has_perm, ("shop.add_product", "shop.change_product", "shop.make_codes"))):
        raise PermissionDenied
    return HttpResponse(status=204)


def check_picture(path: str, *, before: str = "") -> str:
    """Return the path of a picture. before: the product's own until now, which may stay.

    Raises ValidationError when no page could show it, or when it was uploaded for another product.
    """
    if path and path != before and (is_kept(path) or not picture_url(path)):
        text = gettext("There is no picture at %(path)s. Name a file under static/, like shop/products/lantern.svg.")
        raise forms.ValidationError(text % {"path": path})
    return path


class UploadInput(forms.FileInput):
    """Lets the browser offer pictures only, and say that a file is too large before it is sent."""

    def __init__(self) -> None:
        max_mib = MAX_FILE_BYTES // 1024**2
        too_large = format_lazy(
            gettext_lazy("This file is too large to be sent: a picture may have {n} MB."), n=max_mib
        )
        limits = {"data-most-bytes": MAX_FILE_BYTES, "data-too-large": too_large}
        super().__init__({"accept": "image/jpeg,image/png,image/webp", **limits})


class UploadField(forms.FileField):
    """A picture to upload. Cleaned it is the bytes to keep, b"" for none."""

    widget = UploadInput

    def __init__(self, **named: Any) -> None:
        super().__init__(
            required=False,
            label=gettext_lazy("Picture"),
            help_text=gettext_lazy("JPEG, PNG or WebP, up to 8 MB. Pages show it cut to 4:3."),
            **named,
        )

    def clean(self, data: Any, initial: Any = None) -> Any:
        """Return the picture as it is kept. Raises ValidationError, which says why a file is not taken."""
        upload = super().clean(data, initial)
        return encode_once(upload) if upload else b""


def encode_once(upload: Any) -> bytes:
    """Return an uploaded file as the picture to keep; a second call finds what the first one did.

    The first is for before a transaction: PostgreSQL ends one that idles, and a large picture takes a while.
    Raises ValidationError, each time.
    """
    if not hasattr(upload, "encoded"):
        try:
            upload.encoded = encode_picture(upload)
        except forms.ValidationError as error:
            upload.encoded = error
    if isinstance(upload.encoded, forms.ValidationError):
        raise upload.encoded
    picture: bytes = upload.encoded
    return picture


def encode_first(request: HttpRequest) -> None:
    """Encode the picture that `request` brings, if it brings one; its form says what is wrong with it."""
    if upload := request.FILES.get("upload"):
        with suppress(forms.ValidationError):
            encode_once(upload)


def path_field() -> forms.CharField:
    """Return the field for a picture that came with the shop."""
    return forms.CharField(
        required=False,
        max_length=80,
        label=gettext_lazy("Or a static file"),
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("A file under static/, like shop/products/lantern.svg."),
    )


class ProductForm(forms.ModelForm):  # type: ignore[type-arg]
    """A product with its picture; an upload takes the place of the one before."""

    upload = UploadField()
    picture = path_field()
    seen = forms.CharField(label=gettext_lazy("Version"), widget=forms.HiddenInput, required=False)

    class Meta:
        labels = {
            "tagline_zh": gettext_lazy("Tagline in Chinese"),
            "description_zh": gettext_lazy("Description in Chinese"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        values = sorted((name, str(value)) for name, value in model_to_dict(self.instance).items())
        self.initial["seen"] = sha256(repr(values).encode()).hexdigest()

    def clean(self) -> dict[str, Any]:
        """Refuse to take back what somebody else saved meanwhile: the row is locked, and has another digest."""
        data = super().clean() or self.cleaned_data
        if not self.instance._state.adding and data.get("seen") != self.initial["seen"]:
            raise forms.ValidationError(gettext(CHANGED_MEANWHILE))
        return data

    def clean_picture(self) -> str:
        """Return the path. Raises ValidationError when no page could show it."""
        return check_picture(self.cleaned_data["picture"], before=self.initial.get("picture", ""))


class PictureAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """An admin whose form may bring a picture."""

    class Media:
        js = ["shop/admin/forms.js"]

    def changeform_view(self, request: HttpRequest, *args: Any, **named: Any) -> HttpResponse:
        """As Django's, which begins a transaction."""
        encode_first(request)
        return super().changeform_view(request, *args, **named)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Lock the row while a form is saved: its version stays true, and of two new pictures the later one wins."""
        if request.method == "POST":
            # Not the key: settlement inserts orders of a sale meanwhile.
            list(self.model.objects.select_for_update(no_key=True).filter(pk=object_id))
        return super().get_object(request, object_id, from_field)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return Django's; for somebody who may only look, without what the form alone has: it has nothing to show."""
        found: Any = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return found
        return [
            (name, {**more, "fields": [each for each in more["fields"] if hasattr(self.model, each)]})
            for name, more in found
        ]

    def keep_picture(
        self, request: HttpRequest, product: Product, *, form: forms.ModelForm[Any], before: str = ""
    ) -> None:
        """Keep what `form` brings as the picture of `product`, which is saved already. before: its path until now."""
        content: bytes = form.cleaned_data.get("upload") or b""
        if content:
            product.picture = name_picture()
            Product.objects.filter(pk=product.pk).update(picture=product.picture)
        text = gettext("Saved, but the picture could not be kept: the storage refused it. Upload it again later.")
        complain = partial(self.message_user, request, text, level=messages.WARNING)
        settle_picture(product, before=before, content=content, complain=complain)


class ProductAdmin(TellsChanges, PictureAdmin):
    """What is offered; the stock it counts is chosen once."""

    form = ProductForm
    fields = (
        "slug", "title", "tagline", "tagline_zh", "description", "description_zh", "upload", "picture", "list_price",
        "stock", "seen",
    )  # fmt: skip
    list_display = ("title", "slug", "stock", "list_price")
    list_select_related = ("stock",)
    search_fields = ("title", "slug", "stock__sku")
    ordering = ("title",)

    def get_readonly_fields(self, request: HttpRequest, obj: Product | None = None) -> tuple[str, ...]:
        return ("stock",) if obj else ()

    def save_model(self, request: HttpRequest, obj: Product, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self.keep_picture(request, obj, form=form, before=form.initial.get("picture") or "")

    def delete_model(self, request: HttpRequest, obj: Product) -> None:
        forget_picture(obj)
        super().delete_model(request, obj)
