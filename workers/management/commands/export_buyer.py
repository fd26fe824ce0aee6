"""manage.py export_buyer NUMBER: everything that is kept of the buyer of an order, as JSON. Changes nothing."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from inventory.exceptions import FairdropError
from shop.orders.personal_data import export_buyer, find_buyer


class Command(BaseCommand):
    help = "Print everything that is kept of the buyer of an order, as JSON."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", help="the number of one of their orders, such as FD-1042-7")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            kept = export_buyer(find_buyer(options["number"]))
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(json.dumps(kept, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2))
