"""Every act of staff on a sale: what it means, what it asks for, which right it needs; the forms that ask; and how one
is done, alone and only on what its form had shown. Never changes a sale itself: every act is a service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext_noop as _

from inventory.exceptions import FairdropError, InvalidRequest
from inventory.postgres import TwoKeyAdvisoryLock
from shop.accounts.forms import PasswordAgain
from shop.models import Sale, StaffAct
from shop.names.sentences import in_words
from shop.staff import line_actions, retiring, sale_control
from shop.staff.lists.one_press import alone
from shop.staff.lists.order_acts import ON_ORDERS
from shop.staff.lists.rights import ActsByRight


class Act(NamedTuple):
    """One act: its service, its name on the page, what it does in a sentence, its right, and what it asks for.

    asks: units, letters (of the dead), network or lock (who was seen holding it), alongside the reason.
    grave: no way back. asks_password: again, unless it was given a moment ago.
    """

    service: Callable[..., Any]
    title: str
    meaning: str
    permission: str
    asks: str = ""
    reason_required: bool = False
    grave: bool = False
    asks_password: bool = False


# Those that need nothing but the sale, its count and a reason: also offered for several sales at once, in their list.
ACTS = {
    "open_now": Act(sale_control.open_now, _("Open now"), _("People may ask from this moment on."), "shop.open_sale"),
    "pause": Act(
        sale_control.pause,
        _("Pause"),
        _(
            "Nobody is let in and nobody in line is decided until it is resumed; holds may be paid. "
            "Buyers read the reason."
        ),
        "shop.pause_sale",
        reason_required=True,
    ),
    "resume": Act(sale_control.resume, _("Resume"), _("The line goes on where it stood."), "shop.pause_sale"),
    "close": Act(
        sale_control.close,
        _("Close"),
        _("People in line get what is free, the rest are told sold out. There is no way back."),
        "shop.close_sale",
        grave=True,
    ),
    "retire": Act(
        retiring.retire,
        _("Retire"),
        _(
            "Redis forgets it: from then on its pages, tickets and audit come from the database alone. "
            "Only a sale that is over, and in which nobody waits, holds or is owed money. There is no way back."
        ),
        "shop.retire_sale",
        reason_required=True,
        grave=True,
    ),
    "restock": Act(
        sale_control.restock,
        _("Restock"),
        _("Units that came in; they go to the head of the line."),
        "shop.change_stock",
        asks="units",
        asks_password=True,
    ),
    "adjust": Act(
        sale_control.adjust,
        _("Adjust the count"),
        _("Corrects the count, up or down, never below what is held and sold."),
        "shop.change_stock",
        asks="units",
        reason_required=True,
        asks_password=True,
    ),
}
ROOM_ACTS = ACTS | {
    "retry": Act(
        line_actions.retry_letters,
        _("Retry dead letters"),
        _("Those that were never decided go back to their place in line; the others stay as they are."),
        "shop.retry_dead_letter",
        asks="letters",
        reason_required=True,
    ),
    "discard": Act(
        line_actions.discard_letters,
        _("Discard dead letters"),
        _("They leave the list; one that was never decided is refused for good."),
        "shop.discard_dead_letter",
        asks="letters",
        reason_required=True,
        grave=True,
    ),
    "revoke": Act(
        sale_control.revoke_network,
        _("Revoke a network"),
        _(
            "Within a second or two this sale lets nobody in any more from that network, nor with a token that was "
            "given there. People in line keep their place. Give its mark, an address, or the network."
        ),
        "shop.revoke_network",
        asks="network",
        reason_required=True,
        grave=True,
    ),
    "unrevoke": Act(
        sale_control.restore_network,
        _("Let a network in again"),
        _("People of that network may ask again. Give its mark, an address, or the network."),
        "shop.revoke_network",
        asks="network",
        reason_required=True,
    ),
    "reconcile": Act(
        line_actions.ask_comparison,
        _("Reconcile"),
        _("The reconciler compares Redis, orders and ledger of this SKU at once, and mends what is safe."),
        "shop.reconcile_sale",
        reason_required=True,
    ),
    "force_release": Act(
        line_actions.take_lock_away,
        _("Force-release the lock"),
        _("Takes the SKU's lock from its holder; its fence rises, so what the old holder writes is refused."),
        "inventory.force_release_lock",
        asks="lock",
        reason_required=True,
        grave=True,
    ),
}


def may(user: AbstractBaseUser | AnonymousUser, act: Act) -> bool:
    """Say whether `user` has the right for `act`."""
    return bool(user.has_perm(act.permission))  # type: ignore[union-attr]


def newest_act(sale: Sale) -> StaffAct | None:
    """Return what was last done to `sale`; acts on its orders change nothing that its forms show."""
    return StaffAct.objects.filter(sale=sale).exclude(act__endswith=ON_ORDERS).first()


def run_act(
    sale: Sale, act: Act, *, user: AbstractBaseUser | AnonymousUser, seen_act: int, values: dict[str, Any]
) -> str:
    """Do `act` and say what came of it. seen_act: id of the newest act when the form was made, 0 for none.

    Raises PermissionDenied, InvalidRequest when something was done since then, and what the service raises.
    """
    if not may(user, act):
        raise PermissionDenied
    with alone(TwoKeyAdvisoryLock.CONTROL_ROOM, sale.pk, what=gettext("another act on this sale")):
        newest = newest_act(sale)
        if newest is not None and newest.pk != seen_act:
            at = timezone.localtime(newest.at).strftime("%H:%M:%S")
            text = gettext(
                "%(actor)s did “%(act)s” at %(time)s, after this form was made, so nothing was done now. "
                "Look at the sale again; if it is still right, confirm once more."
            )
            raise InvalidRequest(text % {"actor": newest.actor, "act": gettext(newest.act), "time": at})
        told = act.service(sale.slug, actor=user.get_username(), **values)
    return told if isinstance(told, str) else gettext("done")


def read_number(text: str | None) -> int:
    """Return the number that a hidden field brings, 0 for none."""
    return int(text) if text and text.isdecimal() else 0


class ActForm(PasswordAgain):
    """Reason and, where it matters, units, letters, the lock's holder or the password again, of one act."""

    units = forms.IntegerField(label=gettext_lazy("Units"), min_value=-1_000_000, max_value=1_000_000)
    network = forms.CharField(
        label=gettext_lazy("Network"), max_length=50, widget=forms.TextInput({"class": "vTextField"})
    )
    letters = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, label=gettext_lazy("Dead letters"))
    # Units in all when the page was made: a form that is sent twice, or lay open, changes no count.
    seen_total = forms.IntegerField(
        label=gettext_lazy("Units in all, as the page showed them"), widget=forms.HiddenInput, required=False
    )
    seen_token = forms.CharField(widget=forms.HiddenInput, required=False)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=sale_control.MAX_REASON_LENGTH,
        required=False,
        widget=forms.TextInput({"class": "vTextField"}),
    )

    def __init__(
        self,
        request: HttpRequest,
        act: Act,
        data: Any = None,
        *,
        letters: Sequence[tuple[str, str]] = (),
        token: str = "",
        seen_total: int | None = None,
        network: str = "",
    ) -> None:
        shown = {"seen_token": token, "seen_total": seen_total, "network": network}
        super().__init__(request, data, asks_password=act.asks_password, initial=shown)
        self.fields["reason"].required = act.reason_required
        self.fields["letters"].choices = list(letters)  # type: ignore[attr-defined]
        for name, field in (
            ("units", "units"),
            ("units", "seen_total"),
            ("letters", "letters"),
            ("network", "network"),
            ("lock", "seen_token"),
        ):
            if act.asks != name:
                del self.fields[field]


class SaleActs(ActsByRight):
    """The list of sales with the acts that anyone who looks at it may do."""

    rights = {name: act.permission for name, act in ACTS.items()}


def action_for(name: str) -> Callable[[Any, HttpRequest, QuerySet[Sale]], HttpResponse | None]:
    """Return the admin action `name`: the first call asks, the confirmed one acts."""
    act = ACTS[name]

    @admin.action(description=gettext_lazy(act.title))
    def run(model_admin: Any, request: HttpRequest, queryset: QuerySet[Sale]) -> HttpResponse | None:
        if not may(request.user, act):
            raise PermissionDenied
        confirmed = "confirm" in request.POST
        first = queryset.select_related("stock").first()
        if first is None:
            told = gettext("Nothing that was chosen is in the list as it is filtered; nothing was done.")
            model_admin.message_user(request, told, level=messages.ERROR)
            return None
        form = ActForm(request, act, request.POST if confirmed else None, seen_total=first.stock.total)
        if act.asks == "units" and queryset.count() != 1:
            model_admin.message_user(request, gettext("Choose one sale."), level=messages.ERROR)
            return None
        if not confirmed or not form.is_valid():
            return _ask(model_admin, request, queryset, name=name, act=act, form=form)
        for sale in queryset:
            _do(model_admin, request, sale, act=act, values=form.cleaned_data)
        return None

    run.__name__ = name
    return run


def _ask(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[Sale], *, name: str, act: Act, form: ActForm
) -> HttpResponse:
    context = {
        **model_admin.admin_site.each_context(request),
        "title": gettext(act.title),
        "act": act,
        "action": name,
        "sales": _shown(request, queryset),
        "form": form,
        "checkbox": ACTION_CHECKBOX_NAME,
        "opts": model_admin.opts,
    }
    return TemplateResponse(request, "admin/shop/sale/act.html", context)


def _shown(request: HttpRequest, queryset: QuerySet[Sale]) -> list[tuple[Sale, str]]:
    """Return each sale with its newest act, as the page says it: that of the first page when a form is shown again."""
    sales = queryset.select_related("stock").annotate(newest=Max("acts__pk", filter=~Q(acts__act__endswith=ON_ORDERS)))
    return [(each, request.POST.get(f"seen_act_{each.pk}", str(each.newest or 0))) for each in sales]


def _do(model_admin: Any, request: HttpRequest, sale: Sale, *, act: Act, values: dict[str, Any]) -> None:
    seen = read_number(request.POST.get(f"seen_act_{sale.pk}"))
    try:
        run_act(sale, act, user=request.user, seen_act=seen, values=values)
    except FairdropError as error:
        model_admin.message_user(request, f"{sale.slug}: {in_words(error.detail)}", level=messages.ERROR)
    else:
        told = gettext("%(name)s: %(act)s, done.") % {"name": sale.slug, "act": gettext(act.title).lower()}
        model_admin.message_user(request, told, level=messages.SUCCESS)
