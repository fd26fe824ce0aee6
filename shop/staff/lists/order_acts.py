"""Every act of staff on an order: service, meaning, the state it needs, its right; and how one is done and logged.
Never changes an order itself: the services do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from django import forms
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext_noop as _

from inventory.exceptions import InvalidRequest, LineNotTold
from inventory.states import Reason, State
from shop.accounts.forms import PasswordAgain
from shop.models import Order, Payment, StaffAct
from shop.orders import deliveries, email_codes, holds, mails
from shop.orders.holds import Note
from shop.orders.numbers import order_number
from shop.payments import refunds

# Ends the name of each act in the log of acts.
ON_ORDERS = "_order"


class OrderAct(NamedTuple):
    """One act: its service, name and meaning, the states an order must be in (none: any), and the right it needs.

    asks_password: again, unless it was given a moment ago.
    """

    service: Callable[..., str]
    title: str
    meaning: str
    states: tuple[State, ...]
    permission: str
    asks_password: bool = False


def cancel_order(order: Order, *, actor: str, reason: str, note: Note) -> str:
    """End a hold before its time; its units are free at once. Raises NotPayable, Unavailable."""
    with suppress(LineNotTold):  # as with a refund: it is done, and staff read the database
        holds.cancel(order.request_id, buyer=order.buyer, actor=actor, reason=reason, again_ok=False, note=note)
    return gettext("its units are free")


def refund_order(order: Order, *, actor: str, reason: str, note: Note, ask_now: bool = True) -> str:
    """Give the money back and make the units free; say how far the money has come. Raises NotPayable, Unavailable.

    ask_now: ask the provider at once; else the payments worker does, a few seconds later.
    """
    refunds.refund_order(order.request_id, actor=actor, reason=reason, ask_now=ask_now, note=note)
    if not ask_now:
        return gettext("its units are free, and the provider is asked for the money within seconds")
    if Payment.objects.filter(order=order, state=Payment.State.REFUND_DUE).exists():
        return gettext("its units are free; the provider does not answer, and is asked for the money again and again")
    if Payment.objects.filter(order=order, reason=Reason.TAKEN_BY_BANK).exists():
        return gettext("its units are free; the money did not go back, because the buyer's bank took it in a dispute")
    return gettext("its units are free and the money went back")


def void_order(order: Order, *, actor: str, reason: str, note: Note, ask_now: bool = True) -> str:
    """Refund a paid order, or end a hold; its units go to the next in line. Raises NotPayable, Unavailable."""
    if order.state == State.PAID:
        return refund_order(order, actor=actor, reason=reason, note=note, ask_now=ask_now)
    return cancel_order(order, actor=actor, reason=reason, note=note)


def note_sent(order: Order, *, actor: str, reason: str, note: Note) -> str:
    """Note that the money of a failed refund was sent by another way. Raises NotPayable when no refund has failed."""
    refunds.note_sent(order.request_id, reason=reason, note=note)
    return gettext("it is not owed any more")


def send_link(order: Order, *, actor: str, reason: str, note: Note) -> str:
    """Send the secret link again, to the address that is kept and to no other. Raises InvalidRequest without one."""
    mails.send_link_again(order)
    note()
    return gettext("queued for the address that its buyer gave")


def delete_address(order: Order, *, actor: str, reason: str, note: Note) -> str:
    """Delete the addresses of an order's buyer, and the mails to them."""
    mails.forget_address(order.request_id)
    email_codes.mails_of(order.buyer).delete()
    deliveries.forget_address(order.request_id)
    note()
    return gettext("no address is kept")


ORDER_ACTS = {
    "cancel": OrderAct(
        cancel_order,
        _("Cancel"),
        _("The hold ends now, and its units go to the next in line."),
        (State.HELD,),
        "shop.cancel_order",
    ),
    "refund": OrderAct(
        refund_order,
        _("Refund"),
        _("The whole amount goes back to the buyer, and the units are free again."),
        (State.PAID,),
        "shop.refund_order",
        asks_password=True,
    ),
    "void": OrderAct(
        void_order,
        _("Void before shipping"),
        _(
            "Nothing is shipped: the whole amount of a paid order goes back, a hold ends now, and the units go to the "
            "next in line. The public log counts it, without what you write."
        ),
        (State.HELD, State.PAID),
        "shop.void_order",
        asks_password=True,
    ),
    "sent": OrderAct(
        note_sent,
        _("Money was sent"),
        _("The buyer's bank did not take the refund, and you sent the money another way. Nothing is sent by this."),
        (),
        "shop.refund_order",
        asks_password=True,
    ),
    "mail": OrderAct(
        send_link,
        _("Send the link"),
        _("The secret link goes to the address that the buyer gave, and to no other. Nobody here sees either."),
        (),
        "shop.mail_order",
    ),
    "forget": OrderAct(
        delete_address,
        _("Delete the address"),
        _("The buyer's e-mail address is deleted, every mail to it that is kept or waits, and the delivery address."),
        (),
        "shop.mail_order",
    ),
}


class ReasonForm(PasswordAgain):
    """Why; it stands in the order's history for ever. Some acts ask for the password again too."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=Order._meta.get_field("reason").max_length,
        widget=forms.TextInput({"class": "vTextField"}),
    )


def do_act(order: Order, name: str, *, actor: str, reason: str, **more: Any) -> str:
    """Act, and add it to what staff did to the sale: with a hold or money in one transaction, as the order's history.

    more: what only some services take. Returns what came of it. Raises InvalidRequest when the order is not in the
    state that its page had shown, or the reason is a word of the shop's; else as the service.
    """
    if reason in {*Reason}:  # it decides about money: one says that a refund failed, so nobody would ask for it
        raise InvalidRequest(gettext("say it in your own words: the shop itself writes this"))
    act = ORDER_ACTS[name]
    if act.states and order.state not in act.states:
        text = gettext("this order is %(state)s by now; nothing was done")
        raise InvalidRequest(text % {"state": gettext(order.state.replace("_", " "))})

    def note() -> None:
        number = order_number(order.pk)
        StaffAct.objects.create(sale=order.sale, act=name + ON_ORDERS, actor=actor, reason=reason, detail=number)

    return act.service(order, actor=actor, reason=reason, note=note, **more)
