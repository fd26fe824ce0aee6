"""manage.py forget_buyer NUMBER: takes what names the buyer of an order out of the shop. It cannot be undone.
Never changes what was sold; stands in the log of acts with its actor and reason.
"""

from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory.exceptions import FairdropError
from shop.orders.personal_data import find_buyer, forget_buyer


class Command(BaseCommand):
    help = "Delete addresses, mails and links of the buyer of an order, and their id in orders of retired sales."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", help="the number of one of their orders, such as FD-1042-7")
        parser.add_argument("--reason", required=True, help="why; goes into the log of acts, so it must name nobody")
        parser.add_argument("--actor", default=getpass.getuser(), help="who does it (default: this account)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            done = forget_buyer(find_buyer(options["number"]), actor=options["actor"], reason=options["reason"])
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"Forgotten: addresses, mails and links of {done.orders} orders.")
        if done.kept_in:
            sales = ", ".join(done.kept_in)
            self.stdout.write(f"Not retired yet, so their id stays there: {sales}. Run this again after they are.")
