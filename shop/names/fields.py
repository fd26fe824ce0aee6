"""Gives the tables and fields of this shop names that a reader of Chinese reads in Chinese.
Never changes what a migration sees: that is the name that the model itself was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy, override
from django.utils.translation import gettext_noop as _

# Django makes a name of what a model or a field is called in Python. Such a name stands nowhere else, so it is marked
# here; a test holds that none is missing. Older acts have "room" for the line capacity.
NAMES = (
    _("Inventory"), _("Shop"), _("Passkeys"), _("Sandbox"), _("Stripe"), _("Salelog"), _("Workers"), _("Axes"),
    _("Otp_Totp"), _("Otp_Static"), _("Post Office"),
    _("stock"), _("stock movement"), _("stock movements"), _("product"), _("products"), _("sale"), _("sales"),
    _("access code"), _("access codes"), _("code use"), _("code uses"), _("code"), _("network"),
    _("revoked networks"),
    _("pass"), _("pass mode"), _("pass rush"), _("codes required"), _("an access code is needed"),
    _("email mode"), _("verified e-mail"), _("email list"), _("for everybody from"), _("listed email"),
    _("listed emails"), _("digest"),
    _("order"), _("orders"), _("order event"), _("order events"), _("ticket link"), _("ticket links"), _("contact"),
    _("contacts"), _("delivery address"), _("delivery addresses"), _("sale terms"), _("template of terms"),
    _("templates of terms"), _("staff act"), _("staff acts"), _("sale sample"), _("sale samples"), _("payment"),
    _("payments"), _("payment notice"), _("payment notices"), _("passkey"), _("passkeys"), _("charge"), _("charges"),
    _("event"), _("events"), _("checkout session"), _("checkout sessions"), _("sale log"),
    _("sale logs"), _("tile"), _("tiles"), _("line event"), _("line events"), _("reading"), _("readings"),
    _("buyers forgotten at"), _("is active"), _("is staff"), _("is superuser"), _("email"),
    _("act"), _("actor"), _("at"), _("available"), _("buyer"), _("buyer limit"), _("changed at"), _("closes at"),
    _("created at"), _("currency"), _("decided at"), _("delta"), _("description"), _("description in Chinese"),
    _("detail"), _("fence"), _("goods are shipped"), _("held"), _("hold expires at"), _("hold seconds"), _("kind"),
    _("line capacity"), _("list price"), _("name"), _("opens at"), _("ordinal"), _("ordinal base"), _("pause reason"),
    _("per buyer limit"), _("per network limit"), _("picture"), _("price"), _("quantity"), _("reason"),
    _("request id"), _("request key"), _("restored"), _("retired at"), _("revision"), _("room"), _("seq"), _("sku"),
    _("slug"), _("sold"), _("standby"), _("state"), _("switch"), _("tagline"), _("tagline in Chinese"),
    _("terms version"), _("title"), _("title in Chinese"), _("total"), _("unit price"), _("version"),
)  # fmt: skip
# Of what other packages have without Chinese: tables in the list of rights.
FOREIGN = (
    _("access failure"), _("access attempt"), _("access attempt expiration"), _("access log"), _("TOTP device"),
    _("static device"), _("static token"), _("Email"), _("Log"), _("Email Template"), _("Attachment"),
)  # fmt: skip
# What Django's own pages say and its Chinese lacks.
DJANGOS = (
    _("Model name"), _("Add link"), _("Change or view list link"), _("Error:"),
    _("After you’ve created a user, you’ll be able to edit more user options."),
    _("group-permission relationship"), _("group-permission relationships"), _("user-permission relationship"),
    _("user-permission relationships"), _("user-group relationship"), _("user-group relationships"),
)  # fmt: skip
# The history of a row names the fields of its form as they are written there, with a capital.
LABELS = (
    _("Slug"), _("Title"), _("Title in Chinese"), _("Product"), _("Stock"), _("Currency"), _("Opens at"),
    _("Closes at"), _("Goods are shipped"), _("An access code is needed"), _("Verified e-mail"),
    _("For everybody from"), _("Username"),
    _("First name"), _("Last name"), _("Email address"), _("Active"),
    _("Staff status"), _("Superuser status"), _("Groups"), _("User permissions"), _("Permissions"), _("Last login"),
    _("Date joined"), _("Password"),
)  # fmt: skip


def translate_names() -> None:
    """Let the names of apps, tables and fields follow the reader; once, before a form is made of a model."""
    with override(None):  # each is taken as it was written
        for config in apps.get_app_configs():
            config.verbose_name = gettext_lazy(str(config.verbose_name))
            _translate_tables(config)


def _translate_tables(config: AppConfig) -> None:
    for model in config.get_models(include_auto_created=True):
        meta: Any = model._meta
        meta.verbose_name = gettext_lazy(str(meta.verbose_name))
        meta.verbose_name_plural = gettext_lazy(str(meta.verbose_name_plural))
        for field in meta.local_fields:
            field.verbose_name = gettext_lazy(str(field.verbose_name))
            if field.choices:
                field.choices = _followed(field.choices)


def _followed(choices: Iterable[Sequence[Any]]) -> list[tuple[Any, Any]]:
    """Return choices whose labels follow the reader."""
    return [(value, label if isinstance(label, int) else gettext_lazy(str(label))) for value, label in choices]
