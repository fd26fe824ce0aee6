"""manage.py forget_buyer NUMBER --reason WHY [--yes]: takes what names the buyer of an order out of the shop. It cannot
be undone, so without --yes it only counts what would go. Exit code 1 when nothing was forgotten.
Never changes what was sold, never prints what is personal; stands in the log of acts with its actor and reason.
"""

from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory.exceptions import FairdropError
from shop.orders.personal_data import export_buyer, find_buyer, forget_buyer
from shop.staff.sale_control import check_act


class Command(BaseCommand):
    help = "Delete addresses, mails and links of the buyer of an order, and their id once all their sales are retired."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", help="the number of one of their orders, such as FD-1042-7")
        parser.add_argument("--reason", required=True, help="why; goes into the log of acts, so it must name nobody")
        parser.add_argument("--actor", default=getpass.getuser(), help="who does it (default: this account)")
        parser.add_argument("--yes", action="store_true", help="do it; without this the command only counts")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            check_act(actor=options["actor"], reason=options["reason"])
            buyer = find_buyer(options["number"])
            self.stdout.write(summary_of(export_buyer(buyer)))
            if not options["yes"]:
                raise CommandError("Nothing was changed. Compare this with the buyer's ticket, then add --yes.")
            done = forget_buyer(buyer, actor=options["actor"], reason=options["reason"])
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"Forgotten: addresses, mails and links of {done.orders} orders.")
        if done.kept_in:
            sales = ", ".join(done.kept_in)
            self.stdout.write(f"Not retired yet, so their id stays: {sales}. Run this again after they are.")


def summary_of(kept: dict[str, Any]) -> str:
    """Return which orders a buyer has, and how much that is personal hangs on them. kept: as export_buyer says."""
    orders, places = kept["orders"], [*kept["orders"], *kept["waiting"]]
    mails = kept["codes_by_mail"] + [mail for each in places for mail in each["mails"]]
    counts = {
        "orders": len(orders),
        "requests in line": len(kept["waiting"]),
        "e-mail addresses": sum(contact["address"] != "" for each in places for contact in each["contact"]),
        "delivery addresses": sum(len(each["delivery"]) for each in places),
        "mails": len(mails),
        "marks of networks": sum(each["network"] != "" for each in orders),
        "marks of cards": sum(payment["card"] != "" for each in orders for payment in each["payments"]),
    }
    lines = [f"{each['number']}  {each['sale']}  {each['state']}" for each in orders]
    return "\n".join([*lines, *(f"{name}: {count}" for name, count in counts.items())])
