"""manage.py second_factor reset|list: for a member of staff who lost authenticator, passkeys and recovery codes.
Never shows a key or a code; a reset stands in the log of acts with its actor and reason.
"""

from __future__ import annotations

import getpass
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from shop.accounts import second_factor
from shop.accounts.act_log import AccountAct, note


class Command(BaseCommand):
    help = "Take the second factor from an account, so that its owner sets up another one at the next login; or list."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        acts.add_parser("list", help="who of the staff has set one up")
        reset = acts.add_parser("reset", help="take it away, with all passkeys and recovery codes")
        reset.add_argument("username", help="the account")
        reset.add_argument("--reason", required=True, help="why, and how you know who asks; goes into the log of acts")
        reset.add_argument("--actor", default=getpass.getuser(), help="who does it (default: this account)")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"] == "list":
            for each in User.objects.filter(is_active=True, is_staff=True).order_by("username"):
                self.stdout.write(f"{each.username}: {second_factor.describe(each)}")
            return
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"there is no account {options['username']}")
        if not second_factor.reset(user):
            raise CommandError(f"{user.username} has no second factor")
        detail = f"by {options['actor']}: {options['reason']}"
        note(AccountAct.FACTOR_RESET, actor=user.username, detail=detail)
        self.stdout.write(f"{user.username} sets up a new second factor at the next login.")
