"""manage.py sale open|pause|resume|close|retire|restock|adjust|terms SLUG: what staff do to a sale, from a shell.
Never does anything the admin could not; every act is logged with its actor. Exit code 1 when it was refused.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory.exceptions import FairdropError
from shop.sales import catalogue
from shop.staff import retiring, sale_control

ACTS: dict[str, tuple[Callable[..., Any], tuple[str, ...], str]] = {
    "open": (sale_control.open_now, (), "let a scheduled sale begin now"),
    "pause": (sale_control.pause, (), "stop it for a while; --reason is shown to buyers"),
    "resume": (sale_control.resume, (), "let it go on"),
    "close": (sale_control.close, (), "end it; people in line get what is free"),
    "retire": (retiring.retire, (), "let Redis forget a sale that is over and settled; the database answers for it"),
    "restock": (sale_control.restock, ("units", "seen_total"), "add --units that came in"),
    "adjust": (sale_control.adjust, ("units", "seen_total"), "correct the count by --units, never below held and sold"),
    "terms": (sale_control.change_terms, ("price", "per_buyer_limit"), "a new --price or --limit, for new requests"),
}

SHOWN = ("pause_reason", "per_buyer_limit", "quantity", "available", "held", "sold")


class Command(BaseCommand):
    help = "Open, pause, resume, close, retire, restock or adjust a sale, or give it new terms."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "act", choices=list(ACTS), help="; ".join(f"{name}: {why}" for name, (*_, why) in ACTS.items())
        )
        parser.add_argument("slug", help="the sale")
        parser.add_argument("--units", type=int, help="restock, adjust: how many")
        parser.add_argument("--seen-total", type=int, help="restock, adjust: only if the SKU still has so many in all")
        parser.add_argument("--price", type=price, help="terms: the new price")
        parser.add_argument("--limit", type=int, dest="per_buyer_limit", help="terms: units a buyer may have")
        parser.add_argument("--reason", default="", help="why; goes into the log")
        parser.add_argument("--actor", default=getpass.getuser(), help="who does it (default: this account)")
        parser.add_argument("--json", action="store_true", help="print as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        service, wanted, _ = ACTS[options["act"]]
        for name in ("units", "seen_total", "price", "per_buyer_limit"):
            if options[name] is not None and name not in wanted:
                option = name.removeprefix("per_buyer_").replace("_", "-")
                raise CommandError(f"{options['act']} takes no --{option}")
        if "units" in wanted and options["units"] is None:
            raise CommandError(f"{options['act']} needs --units")
        named = {name: options[name] for name in wanted}
        try:
            service(options["slug"], actor=options["actor"], reason=options["reason"], **named)
            card = catalogue.find_sale(options["slug"])
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(json.dumps(row_of(card, act=options["act"])) if options["json"] else text_of(card))


def price(text: str) -> Decimal:
    """Return `text` as an amount. Raises ValueError."""
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(text) from error


def row_of(card: catalogue.SaleCard, *, act: str) -> dict[str, Any]:
    """Return the sale after `act` as JSON shows it."""
    return {
        "act": act,
        "slug": card.slug,
        "sku": card.sku,
        "switch": card.operator_state,
        **{name: getattr(card, name) for name in SHOWN},
        "price": str(card.price),
        "opens_at": card.opens_at.isoformat(),
        "closes_at": card.closes_at.isoformat(),
        "retired_at": card.retired_at.isoformat() if card.retired_at else None,
    }


def text_of(card: catalogue.SaleCard) -> str:
    """Return the sale as a line for people."""
    state = "retired" if card.retired_at else card.operator_state
    return (
        f"{card.slug}: {state}, {card.price} {card.currency}, limit {card.per_buyer_limit}; "
        f"{card.available} free, {card.held} held, {card.sold} sold of {card.quantity}"
    )
