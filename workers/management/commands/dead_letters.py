"""manage.py dead_letters list|retry|discard [--sku SKU] [ID …] [--json]: what was handed out too often, and what to do.
Never queues again what was decided. Exit code 1 when a letter could not be changed.
"""

from __future__ import annotations

import getpass
import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory import redis
from inventory.exceptions import FairdropError
from inventory.line.dead_letters import DeadLetter, Done, dead_letters
from inventory.line.reading import known_skus
from shop.staff.line_actions import change_letters


class Command(BaseCommand):
    help = "List the dead letters of every line (or of --sku), put some back, or refuse them for good."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("mode", choices=["list", "retry", "discard"])
        parser.add_argument("ids", nargs="*", metavar="ID", help="request ids; list shows all when none is named")
        parser.add_argument("--sku", help="the SKU they belong to; all SKUs when none is named")
        parser.add_argument("--json", action="store_true", help="print as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            letters = find_letters(options["sku"], options["ids"])
            if options["mode"] == "list":
                self.stdout.write(letters_as_json(letters) if options["json"] else letters_as_text(letters))
                return
            done = change(letters, options["ids"], mode=options["mode"])
        except FairdropError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(json.dumps(list(map(asdict, done)), indent=2) if options["json"] else as_text(done))
        kept = [each for each in done if not each.done]
        if kept:
            raise CommandError(f"{len(kept)} of {len(done)} unchanged")


def find_letters(sku: str | None, ids: list[str]) -> list[DeadLetter]:
    """Return the letters of one SKU, or of all; only those of `ids` when some are named."""
    client = redis.connect()
    skus = [sku] if sku else known_skus(client)
    return [letter for name in skus for letter in dead_letters(client, name, request_ids=ids or None)]


def change(letters: list[DeadLetter], ids: list[str], *, mode: Any) -> list[Done]:
    """Retry or discard the letters named by `ids`; an id without a letter is reported."""
    if not ids:
        raise CommandError(f"name the ids to {mode}")
    skus = {letter.request_id: letter.sku for letter in letters}
    actor = getpass.getuser()
    done = [Done(name, done=False, reason="there is no such dead letter") for name in ids if name not in skus]
    for name in ids:
        if name in skus:
            done += change_letters(skus[name], [name], mode=mode, actor=actor)
    return done


def letters_as_json(letters: list[DeadLetter]) -> str:
    """Return the letters as a JSON list."""
    rows = [asdict(each) | {"since": each.since.isoformat() if each.since else None} for each in letters]
    return json.dumps(rows, indent=2)


def letters_as_text(letters: list[DeadLetter]) -> str:
    """Return the letters as lines for people."""
    return "\n".join(
        f"{each.request_id}  sku {each.sku}  seq {each.seq}  {each.hand_outs} hand-outs  "
        f"since {each.since.isoformat() if each.since else 'unknown'}  {each.record or 'no record'}"
        for each in letters
    )


def as_text(done: list[Done]) -> str:
    """Return what became of each letter as lines for people."""
    return "\n".join(f"{'✓' if each.done else '✗'} {each.request_id}  {each.reason}".rstrip() for each in done)
