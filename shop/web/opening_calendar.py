"""An opening as a calendar file: one appointment with a reminder, for those who want to be there in time.
Never a promise: staff may move an opening, and the same file fetched again replaces the appointment.
"""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_safe

from inventory.exceptions import SaleNotFound
from inventory.redis import clocks
from shop.payments.checkout import root_of
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from shop.web.languages import language_of
from shop.web.pages import page

RULE = gettext_noop(
    "First come, first served: your place is given the moment you press the button, by the server's clock."
)
LENGTH, REMINDER = timedelta(minutes=15), timedelta(minutes=-5)


@require_safe
@page
def opening_file(request: HttpRequest, *, slug: str) -> HttpResponse:
    """Return the opening of a sale as text/calendar. Raises SaleNotFound, also when it has opened already."""
    card = catalogue.find_sale(slug)
    if card.state_at(clocks.now()) != "scheduled":
        raise SaleNotFound
    with translation.override(language_of(request)):
        text = calendar_of(card, address=root_of(request) + reverse("sale", args=[slug]))
    response = HttpResponse(text, content_type="text/calendar; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{slug}.ics"'
    return response


def calendar_of(card: SaleCard, *, address: str) -> bytes:
    """Return the file. address: of the sale's page; with it the appointment keeps its identity."""
    from icalendar import Alarm, Calendar, Event  # here: it takes a fifth of a second, and most processes never need it

    openings = [(address, card.opens_at, _("%(title)s: the drop opens"))]
    if card.public_at is not None:
        first = _("%(title)s: opens for those who may buy first")
        openings = [(address, card.opens_at, first), (f"{address}#public", card.public_at, openings[0][2])]
    events = []
    for uid, start, words in openings:
        summary = words % {"title": card.shown_title}
        reminder = Alarm.new()
        reminder.add("action", "DISPLAY")
        reminder.add("trigger", REMINDER)
        reminder.add("description", summary)
        events.append(
            Event.new(
                uid=uid,
                summary=summary,
                description=_(RULE),
                url=address,
                start=start,
                end=start + LENGTH,
                stamp=clocks.now(),
                subcomponents=[reminder],
            )
        )
    calendar = Calendar.new(prodid="-//Fairdrop//opening//EN", uid=address, method="PUBLISH", subcomponents=events)
    text: bytes = calendar.to_ical()
    return text
