"""Queues the mails about a request whose buyer gave an address: its link, and the news that matter.

An order's history (OrderEvent) is written in the transaction of each change, and is what mails are made from: each
change is told once, because its mail and the note that it was told are one transaction. Nothing is written for an order
without an address. Never sends: workers/mailer.py does.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import make_msgid
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from post_office.models import PRIORITY, STATUS, Email

from inventory.exceptions import InvalidRequest, RateLimited
from inventory.fault_injection import fault_point
from inventory.redis import clocks
from inventory.signing import signer_for
from inventory.states import State
from shop.access import emails
from shop.access.codes import count_up
from shop.models import Contact, Order, OrderEvent
from shop.orders import ticket_links
from shop.orders.numbers import order_number

# What a mail says of an order that came into this state; no other change is told.
NEWS = {State.HELD: "held", State.PAID: "paid", State.REFUNDED: "refunded"}
# A hold that is longer is warned of once, when so much of it is left.
WARNED_BEFORE = timedelta(minutes=10)
MIN_HOLD_TO_WARN = timedelta(minutes=15)
# So often the link of one request is sent because somebody typed an address.
MAX_LINK_MAILS = 5
# So many mails that anybody can ask for go to one address in so many seconds: codes of one sale, links of all tickets.
MAX_TO_ADDRESS, BOUND_SECONDS = 12, 900
REQUEST_HEADER = "X-Fairdrop-Request"
# Those of some addresses, a page at a time, with whether there is something to tell. A hold is only looked at for its
# warning when it is long.
LOOK = """
WITH page AS (SELECT * FROM shop_contact WHERE is_over = %(over)s AND address <> '' AND id > %(after)s
              ORDER BY id LIMIT %(limit)s)
SELECT p.id, coalesce(EXISTS (SELECT FROM shop_orderevent e WHERE e.order_id = o.id AND e.id > p.told_event)
                      OR o.state = 'held' AND NOT p.is_warned AND o.hold_expires_at - o.decided_at >= %(long)s
                         AND o.hold_expires_at BETWEEN statement_timestamp() AND statement_timestamp() + %(before)s,
                      false)
FROM page p LEFT JOIN shop_order o ON o.request_id = p.request_id ORDER BY p.id
"""
# A mail that waits and speaks of a hold, the only kind of an order that has a time, is late once its buyer has paid.
LATE = """
UPDATE post_office_email m SET expires_at = statement_timestamp() FROM shop_order o
WHERE m.status = ANY(%(waiting)s) AND m.expires_at > statement_timestamp()
  AND o.request_id = m.headers ->> %(header)s AND o.state <> 'held'
"""


def counted_as(normalised: str) -> str:
    """Return what stands for an address where the mails to it are counted."""
    return signer_for("mailed address").sign(normalised)


def find_address(request_id: str) -> str:
    """Return the address that is kept for a request, '' when there is none."""
    return Contact.objects.filter(request_id=request_id).values_list("address", flat=True).first() or ""


def keep_address(request_id: str, address: str, *, language: str, root: str) -> None:
    """Keep where the news of a request go, and queue its link. root: where its buyer reached the shop.

    address: with no spaces around it. Raises InvalidRequest for what is no address, RateLimited when the link was sent
    too often, or links to that address, RedisUnavailable.
    """
    check_mail_is_on()
    normalised = emails.normalise(address)  # also refuses a quoted name, which what sends the mails would take apart
    with transaction.atomic():
        Contact.objects.get_or_create(request_id=request_id)
        contact = Contact.objects.select_for_update().get(request_id=request_id)
        if contact.address == address:
            return  # the same press again: its answer was lost
        if contact.link_mails >= MAX_LINK_MAILS:
            raise RateLimited("The link of this ticket was sent too often.")
        count_link(normalised)
        contact.address, contact.language, contact.root = address, language, root
        contact.is_over = False  # one that was deleted is looked at seldom; so would this be, as long as it waits
        contact.link_mails += 1
        contact.created_at = Now()  # this address is kept for as long as any other
        # What happened until now is on the ticket, where the address was typed.
        _note_told(contact, OrderEvent.objects.filter(order__request_id=request_id).last())
        contact.save()
        _queue(contact, "link")


def count_link(normalised: str) -> None:
    """Count one mail with a link to an address, of all tickets together. Raises RateLimited, RedisUnavailable."""
    if count_up(f"mailed:{counted_as(normalised)}", seconds=BOUND_SECONDS) > MAX_TO_ADDRESS:
        raise RateLimited("Links of tickets were sent to this address too often.")


def send_link_again(order: Order) -> None:
    """Queue the link of an order to the address that is kept, and to no other. Raises InvalidRequest without one."""
    check_mail_is_on()
    contact = Contact.objects.filter(request_id=order.request_id).exclude(address="").first()
    if contact is None:
        raise InvalidRequest("no address is kept for this order; nothing was sent")
    _queue(contact, "link")


def forget_address(request_id: str) -> None:
    """Delete the address of a request, and every mail to it that is kept or waits."""
    Contact.objects.filter(request_id=request_id).update(address="", language="", root="", is_over=True)
    Email.objects.filter(headers__contains={REQUEST_HEADER: request_id}).delete()


def stop_link(contact: Contact) -> str:
    """Return the address of the page that ends the mails of a request."""
    secret = signer_for("stop mails").sign(f"{contact.request_id} {contact.address}")
    return _root(contact) + reverse("mail-stop", args=[contact.request_id, secret])


def stops(request_id: str, secret: str) -> bool:
    """Say whether `secret` ends the mails of `request_id` to the address that is kept now."""
    return signer_for("stop mails").verify(f"{request_id} {find_address(request_id)}", secret)


def find_news(*, over: bool, after: int, limit: int) -> tuple[list[int], int]:
    """Look at up to `limit` addresses with an id above `after`; return those with news, and the last id looked at.

    over: those of orders of which only a refund may still be told. The last id is 0 when there are no more.
    """
    values: dict[str, Any] = {
        "over": over,
        "after": after,
        "limit": limit,
        "long": MIN_HOLD_TO_WARN,
        "before": WARNED_BEFORE,
    }
    with connection.cursor() as cursor:
        cursor.execute(LOOK, values)
        looked = cursor.fetchall()
    return [number for number, has_news in looked if has_news], looked[-1][0] if len(looked) == limit else 0


def queue_news(contact_id: int) -> int:
    """Queue a mail for each change of an order that was not told yet; return how many. Another mailer's are left to it.

    All of it is one transaction: a mail is queued exactly when its change is noted as told.
    """
    with transaction.atomic():
        contact = Contact.objects.select_for_update(skip_locked=True).filter(pk=contact_id).exclude(address="").first()
        if contact is None:
            return 0
        order = Order.objects.select_related("sale").get(request_id=contact.request_id)
        # Changes of one order never overlap, so their ids rise in the order in which they were committed.
        events = list(OrderEvent.objects.filter(order=order, id__gt=contact.told_event).order_by("id"))
        news = [NEWS[State(event.to_state)] for event in events if event.to_state in NEWS]
        if order.state != State.HELD:
            news = [kind for kind in news if kind != NEWS[State.HELD]]
        if not contact.is_warned and _is_nearly_over(order):
            contact.is_warned = True
            news.append("warning")
        if NEWS[State.REFUNDED] in news:
            # A receipt that the mail server did not take in time would come after it.
            waiting = Email.objects.filter(status__in=(STATUS.queued, STATUS.requeued))
            waiting.filter(headers__contains={REQUEST_HEADER: contact.request_id}).update(expires_at=Now())
        for kind in news:
            _queue(contact, kind, order=order)
        fault_point("in_mail")
        _note_told(contact, events[-1] if events else None)
        contact.save(update_fields=["told_event", "is_over", "is_warned"])
    return len(news)


def drop_late_mails() -> None:
    """End the mails that wait and tell of a hold which was paid or given back meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute(LATE, {"waiting": [STATUS.queued, STATUS.requeued], "header": REQUEST_HEADER})


def _note_told(contact: Contact, last: OrderEvent | None) -> None:
    """Note the last change that need not be told any more."""
    if last is not None:
        contact.told_event, contact.is_over = last.pk, last.to_state != State.HELD


def check_mail_is_on() -> None:
    """Raise InvalidRequest in a shop that sends no mails."""
    if not settings.MAIL_ON:
        raise InvalidRequest("this shop sends no mails")


def _is_nearly_over(order: Order) -> bool:
    if order.state != State.HELD or order.hold_expires_at is None:
        return False
    is_long = order.hold_expires_at - order.decided_at >= MIN_HOLD_TO_WARN
    return is_long and timedelta() < order.hold_expires_at - clocks.DATABASE.now() <= WARNED_BEFORE


def _queue(contact: Contact, kind: str, *, order: Order | None = None) -> None:
    """Queue one mail, in its reader's language. One about a hold is not sent any more once the hold is over."""
    order = order or Order.objects.select_related("sale").filter(request_id=contact.request_id).first()
    ends: datetime | None = order.hold_expires_at if order is not None and kind in ("held", "warning") else None
    stop = stop_link(contact)
    shown = {
        "kind": kind,
        "order": order,
        "number": order_number(order.pk) if order else "",
        "link": ticket_links.link_to(contact.request_id, root=_root(contact)),
        "stop": stop,
    }
    with translation.override(contact.language):
        subject, _, message = render_to_string("shop/mail.txt", shown).strip().partition("\n")
    headers = {
        REQUEST_HEADER: contact.request_id,
        "List-Unsubscribe": f"<{stop}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }
    queue_mail(contact.address, subject, message, expires_at=ends, headers=headers)


def queue_mail(
    address: str, subject: str, message: str, *, expires_at: datetime | None, headers: dict[str, str]
) -> None:
    """Queue one mail. expires_at: from then on it is not sent any more."""
    Email.objects.create(
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[address],
        subject=subject,
        message=message.strip() + "\n",
        status=STATUS.queued,
        priority=PRIORITY.medium,
        expires_at=expires_at,
        # Kept with the mail: one that is sent twice can be told from two.
        message_id=make_msgid(domain=settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].rstrip(">")),
        headers=headers,
    )


def _root(contact: Contact) -> str:
    return settings.PUBLIC_URL or contact.root
