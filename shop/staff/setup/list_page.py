"""The page of the admin on which staff say which e-mail addresses may enter a sale: pasted, or as a file. It shows how
many there are, and never one of them.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext, gettext_lazy

from inventory.exceptions import InvalidRequest
from shop.access import emails, lists
from shop.models import ListedEmail, Sale, StaffAct
from shop.staff.setup.codes_page import RIGHT

# Of an address and its end of line; what is pasted comes as a form, which is bounded by DATA_UPLOAD_MAX_MEMORY_SIZE.
MAX_FILE_BYTES, MAX_PASTED = 4 * 1024 * 1024, 12_000
EXTEND, REPLACE, TAKE_AWAY = "extend", "replace", "take away"


def read_addresses(text: str) -> list[str]:
    """Return the normalised addresses of a text with one a line. Raises ValidationError, which names a bad line by its
    number: what stands in it may be somebody's address all the same.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(emails.normalise(line))
        except InvalidRequest as error:
            shown = gettext("Line %(n)d is not taken, and nothing was kept: %(why)s.")
            raise forms.ValidationError(shown % {"n": number, "why": gettext(error.detail)}) from None
        if len(found) > lists.MAX_ADDRESSES:
            raise forms.ValidationError(gettext("A list has at most %(n)d addresses.") % {"n": lists.MAX_ADDRESSES})
    return found


class ListForm(forms.Form):
    """Addresses, and what becomes of those that are on the list."""

    act = forms.ChoiceField(
        label=gettext_lazy("What to do"),
        choices=[
            (EXTEND, gettext_lazy("add to the list")),
            (REPLACE, gettext_lazy("replace the list")),
            (TAKE_AWAY, gettext_lazy("take the list away: any address may enter")),
        ],
        help_text=gettext_lazy("After a list was replaced, buyers must verify their address again."),
    )
    pasted = forms.CharField(
        label=gettext_lazy("E-mail addresses"),
        required=False,
        max_length=MAX_PASTED,
        widget=forms.Textarea({"rows": 8, "autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("One in each line; some hundred can be pasted, more come as a file."),
    )
    upload = forms.FileField(
        label=gettext_lazy("Or a file"),
        required=False,
        widget=forms.FileInput({"accept": ".txt,.csv,text/plain,text/csv"}),
        help_text=gettext_lazy("Text in UTF-8, one address in each line, 4 MB at most."),
    )

    def clean(self) -> dict[str, Any]:
        """Return the act, and the addresses as `addresses`."""
        data = super().clean() or self.cleaned_data
        pasted, upload = data.get("pasted", ""), data.get("upload")
        if self.errors:
            return data
        is_given = bool(pasted.strip() or upload)
        if is_given != (data["act"] != TAKE_AWAY) or (pasted.strip() and upload):
            text = gettext("Paste addresses or choose a file, not both; and neither to take the list away.")
            raise forms.ValidationError(text)
        data["addresses"] = read_addresses(pasted or (text_of(upload) if upload else ""))
        if is_given and not data["addresses"]:
            raise forms.ValidationError(gettext("There is no address in it."))
        return data


def text_of(upload: Any) -> str:
    """Return an uploaded file as text. Raises ValidationError."""
    if upload.size > MAX_FILE_BYTES:
        raise forms.ValidationError(gettext("This file is too large: 4 MB at most."))
    try:
        text: str = upload.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise forms.ValidationError(gettext("This file is no text in UTF-8.")) from None
    return text


class ListPage(admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin of sales with a page for the list of each."""

    def get_urls(self) -> list[URLPattern]:
        page = path("<int:sale_id>/list/", self.admin_site.admin_view(self.list_page), name="shop_sale_list")
        return [page, *super().get_urls()]

    def list_page(self, request: HttpRequest, sale_id: int) -> HttpResponse:
        """Show how many are on it and the form; a POST changes it. Raises Http404, PermissionDenied."""
        sale = self.viewed_sale(request, sale_id)  # type: ignore[attr-defined]
        if not request.user.has_perm(RIGHT):
            raise PermissionDenied
        form = ListForm(request.POST or None, request.FILES or None)
        if request.method == "POST" and form.is_valid():
            try:
                text = change_list(sale, form.cleaned_data, actor=request.user.get_username())
            except InvalidRequest as error:
                form.add_error(None, error.detail)
            else:
                self.message_user(request, text)
                self.prime(request, slug=sale.slug)  # type: ignore[attr-defined]
                return HttpResponseRedirect(request.path)
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("E-mail addresses that may enter %(sale)s") % {"sale": sale.slug},
            "sale": sale,
            "form": form,
            "count": ListedEmail.objects.filter(sale_id=sale_id).count(),
        }
        return TemplateResponse(request, "admin/shop/sale/list.html", context, status=400 if form.errors else 200)


def change_list(sale: Sale, given: dict[str, Any], *, actor: str) -> str:
    """Do what staff asked for, and note it in the log of acts; say what came of it. Raises InvalidRequest."""
    count, act = 0, given["act"]
    with transaction.atomic():
        if act == TAKE_AWAY:
            lists.drop_list(sale.pk)
        else:
            count = lists.put_list(sale.pk, given["addresses"], replaces=act == REPLACE)
        detail = f"{act}: {count} addresses"
        StaffAct.objects.create(sale=sale, act="email_list", actor=actor, detail=detail)
    return gettext("The list has %(n)d addresses now.") % {"n": count} if count else gettext("There is no list now.")
