"""Turns a sale into what a page shows: state words, prices, honest stock.
Never reads a store and never decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from django.contrib.staticfiles import finders
from django.core.exceptions import SuspiciousFileOperation
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import get_language, gettext, ngettext, pgettext

from inventory.line.admission import MAX_ENDED_REQUESTS
from shop.pictures.keeping import FOLDER, is_kept
from shop.sales.currencies import in_minor_units

if TYPE_CHECKING:
    from shop.sales.catalogue import SaleCard

SYMBOLS = {"EUR": "€", "USD": "$", "GBP": "£", "CNY": "CN¥", "JPY": "¥"}
# Yen and yuan share a sign, and a reader of either language takes it for the one they know.
SYMBOLS_IN_CHINESE = {**SYMBOLS, "CNY": "¥", "JPY": "JP¥"}
# Up to here the exact count is shown; above it moves too fast for an exact number to be true when it is read.
EXACT_UP_TO = 20
BANDS = (10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 20)


def money(amount: Decimal, *, currency: str) -> str:
    """Return an amount as a buyer reads it, e.g. €1,234.50, 2.500 KWD; ¥1,500 is yen in English, yuan in Chinese."""
    number = grouped(in_minor_units(Decimal(amount), currency=currency))
    symbols = SYMBOLS_IN_CHINESE if (get_language() or "").startswith("zh") else SYMBOLS
    symbol = symbols.get(currency)
    return f"{symbol}{number}" if symbol else f"{number} {currency}"


def grouped(number: Decimal | int) -> str:
    """Return a number as both languages write it, e.g. 1,234.50; Django's format of Chinese has no groups.

    The scripts' toLocaleString() writes the same.
    """
    return f"{number:,f}" if isinstance(number, Decimal) else f"{number:,}"


def duration(seconds: int) -> str:
    """Return a length of time in words, e.g. 10 minutes; an odd number of seconds stays in seconds."""
    if seconds >= 60 and seconds % 60 == 0:
        return ngettext("%(n)d minute", "%(n)d minutes", seconds // 60) % {"n": seconds // 60}
    return ngettext("%(n)d second", "%(n)d seconds", seconds) % {"n": seconds}


def clock(left: timedelta) -> str:
    """Return the time left as 4:05, 1:04:05 or 2d 01:04:05 (2天 in Chinese); countdown.js writes the same form."""
    total = max(0, int(left.total_seconds()))
    days, hours, minutes, seconds = total // 86_400, total // 3600 % 24, total // 60 % 60, total % 60
    if days:
        return f"{days}{pgettext('days', 'd')} {hours:02}:{minutes:02}:{seconds:02}"
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def picture_url(path: str) -> str:
    """Return the address of the picture that was uploaded as `path`, or that is there under static/; "" for none.

    The path of a static one is typed by staff.
    """
    if is_kept(path):
        return reverse("picture", args=[path.removeprefix(FOLDER)])
    try:
        found = finders.find(path)
        return static(path) if found and Path(found).is_file() else ""
    except (ValueError, SuspiciousFileOperation):
        return ""


def milliseconds(moment: datetime) -> int:
    """Return a moment as whole milliseconds since 1970, the form countdown.js reads."""
    return int(moment.timestamp() * 1000)


@dataclass(frozen=True)
class SaleFace:
    """A sale as a page shows it, as of one moment of the server's clock."""

    card: SaleCard
    now: datetime
    # How many units its reader has in it, where that was looked up.
    owned: int = 0
    max_ended_requests = MAX_ENDED_REQUESTS

    @property
    def state(self) -> str:
        """scheduled, open, paused or closed, and for an open sale also all_held or sold_out."""
        state = self.card.state_at(self.now)
        if state != "open" or self.card.available > 0:
            return state
        return "all_held" if self.card.held > 0 else "sold_out"

    @property
    def takes_requests(self) -> bool:
        return self.state in {"open", "all_held"}

    @property
    def has_form(self) -> bool:
        """Its page has the form that asks for units."""
        return self.left_to_ask > 0 and (self.takes_requests or self.state == "scheduled")

    @property
    def left_to_ask(self) -> int:
        """How many more units its reader may ask for, by the limit."""
        return max(0, self.card.per_buyer_limit - self.owned)

    @property
    def closed_early(self) -> bool:
        """Say whether staff closed it before its time; its end in the books is then that moment."""
        return self.card.operator_state == "closed"

    @property
    def has_ended(self) -> bool:
        """Its end is past; one that staff closed before it opened keeps an end that is still to come."""
        return self.card.closes_at <= self.now

    @property
    def price(self) -> str:
        return money(self.card.price, currency=self.card.currency)

    @property
    def picture_url(self) -> str:
        return picture_url(self.card.picture)

    @property
    def list_price(self) -> str:
        return money(self.card.list_price, currency=self.card.currency)

    @property
    def saving_percent(self) -> int:
        """How much lower the price is than the list price, rounded down: never promised too high."""
        if self.card.list_price <= self.card.price:
            return 0
        return int((self.card.list_price - self.card.price) * 100 / self.card.list_price)

    @property
    def stock_text(self) -> str:
        """What is left, honestly: exact when few, a lower bound when many."""
        left = self.card.available
        if left == 0:
            return gettext("all held") if self.card.held else gettext("none left")
        if left <= EXACT_UP_TO:
            return ngettext("%(n)d left", "%(n)d left", left) % {"n": left}
        band = next(band for band in BANDS if left > band)
        return gettext("more than %(n)s left") % {"n": grouped(band)}

    @property
    def is_scarce(self) -> bool:
        return self.takes_requests and self.card.available <= EXACT_UP_TO

    @property
    def free_percent(self) -> int:
        return self._percent(self.card.available)

    @property
    def held_percent(self) -> int:
        return self._percent(self.card.held)

    @property
    def unsold_percent(self) -> int:
        """Free and held together: how far the bar is filled."""
        return self._percent(self.card.available + self.card.held)

    def _percent(self, units: int) -> int:
        return units * 100 // self.card.quantity if self.card.quantity else 0

    @property
    def hold_text(self) -> str:
        return duration(self.card.hold_seconds)

    @property
    def opens_ms(self) -> int:
        return milliseconds(self.card.opens_at)

    @property
    def is_public(self) -> bool:
        """It was limited to a list or to codes, and is everybody's now."""
        return self.card.is_public(self.now)

    @property
    def asks_code(self) -> bool:
        """Its page has the field of an access code."""
        return self.card.codes_required and not self.is_public and self.state != "closed"

    @property
    def is_presale(self) -> bool:
        """A list or codes let in sooner, and it is not everybody's yet."""
        return self.card.is_presale(self.now)

    @property
    def first_text(self) -> str:
        """Whose opening comes first, before everybody's."""
        if self.card.codes_required and self.card.email_list:
            return gettext("Opens for those on the list who have a code in")
        return (
            gettext("Opens with a code in") if self.card.codes_required else gettext("Opens for those on the list in")
        )

    @property
    def public_ms(self) -> int:
        return milliseconds(self.card.public_at) if self.card.public_at else 0

    @property
    def quantities(self) -> range:
        return range(1, self.left_to_ask + 1)

    @property
    def refresh_seconds(self) -> int:
        """How long a page without script waits before it looks again: soon when the opening is near."""
        left = (self.card.opens_at - self.now).total_seconds()
        return int(min(30, max(2, left + 1)))
