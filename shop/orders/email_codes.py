"""Mails a buyer the code by which they show that they read an address (shop/access/emails.py). Keeps the address in
the mail alone, which the mailer deletes, and answers the same whatever the shop knows of the address.
"""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from operator import or_

from django.conf import settings
from django.db.models import Q, QuerySet
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation
from post_office.models import Email

from inventory.exceptions import InvalidRequest, MailsLimited, SaleClosed
from inventory.redis import clocks
from inventory.signing import Signer
from shop.access import emails, lists
from shop.access.codes import count_up
from shop.models import Sale
from shop.orders.mails import BOUND_SECONDS, MAX_TO_ADDRESS, check_mail_is_on, counted_as, queue_mail
from shop.sales.catalogue import SaleCard

# In BOUND_SECONDS: mails that one network may ask for in one sale, and for one address. A caller over MAX_TO_ADDRESS is
# not told: it would say that others asked for mails to it.
MAX_OF_NETWORK, MAX_OF_NETWORK_TO_ADDRESS = 100, 3
BUYER_HEADER = "X-Fairdrop-Buyer"


def send_code(card: SaleCard, *, address: str, buyer: str, network: str, language: str, root: str) -> None:
    """Queue the mail with the code that is good for `buyer` in a sale, or that says that its address is not listed.

    root: where they reached the shop.

    Raises InvalidRequest for what is no address, and in a sale or a shop that asks for none; SaleClosed, MailsLimited,
    RedisUnavailable.
    """
    check_mail_is_on()
    refuse_unasked(card)
    normalised = emails.normalise(address)
    if not _may_send(card, normalised, network=network):
        return
    # The reader of the mail learns what the list says of the address; a caller who only asked for the mail does not.
    is_listed = not card.email_list or lists.is_listed(normalised, card)
    code = emails.code_for(normalised, card, buyer=buyer) if is_listed or card.public_at else ""
    link = (settings.PUBLIC_URL or root) + reverse("sale-email", args=[card.slug])
    with translation.override(language):
        shown = {"code": code, "card": card, "link": link, "minutes": emails.CODE_SECONDS // 60}
        shown["is_listed"] = is_listed
        subject, _, message = render_to_string("shop/email_code.txt", shown).strip().partition("\n")
    ends = timezone.now() + timedelta(seconds=emails.CODE_SECONDS)
    headers = {BUYER_HEADER: _names_of(buyer)[0]}
    queue_mail(address.strip(), subject, message, expires_at=ends, headers=headers)


def refuse_unasked(card: SaleCard) -> None:
    """Raise InvalidRequest for a sale that asks for no e-mail, SaleClosed for one that is over."""
    if card.email_mode == Sale.EmailMode.NEVER:
        raise InvalidRequest("this sale asks for no e-mail address")
    if card.retired_at is not None or card.state_at(clocks.now()) == "closed":
        raise SaleClosed


def mails_of(buyer: str) -> QuerySet[Email]:
    """Return the mails with codes for a buyer that are kept."""
    is_theirs = reduce(or_, (Q(headers__contains={BUYER_HEADER: name}) for name in _names_of(buyer)))
    found: QuerySet[Email] = Email.objects.filter(is_theirs).order_by("pk")
    return found


def _names_of(buyer: str) -> list[str]:
    """Return what stands for a buyer in the mails to them, with each key: those who carry a mail learn no id."""
    return [Signer([key], purpose="mailed buyer").sign(buyer) for key in settings.TOKEN_KEYS]


def _may_send(card: SaleCard, address: str, *, network: str) -> bool:
    """Count one mail to a normalised address; say whether it is sent. Raises MailsLimited, RedisUnavailable."""
    name = f"mailed:{card.sale_id}:{counted_as(address)}"
    of_network = {f"mailed:{card.sale_id}:{network}": MAX_OF_NETWORK, f"{name}:{network}": MAX_OF_NETWORK_TO_ADDRESS}
    if any(count_up(each, seconds=BOUND_SECONDS) > most for each, most in of_network.items()):
        raise MailsLimited
    return count_up(name, seconds=BOUND_SECONDS) <= MAX_TO_ADDRESS
