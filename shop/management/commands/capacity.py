"""manage.py capacity [--buyers N ...]: says what a planned sale needs, and what is bound first.
Changes nothing and asks no store: it computes from what benchmarks measured. Exit code 1 when the plan makes no sense.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from shop.capacity import costs, presentation
from shop.capacity.prediction import PlannedSale, needs_of

HELP = {
    "buyers": (int, "how many press the button (needed unless --table or --save)"),
    "seconds": (float, "in which all of them press"),
    "presses": (float, "how often each presses"),
    "units": (int, "to sell in all"),
    "skus": (int, "over which they are spread evenly"),
    "room": (int, "places of each line beyond its units"),
    "readers": (float, "sale pages read a second meanwhile"),
    "streams": (int, "live streams held open at once; without it, one for each who is admitted"),
    "ticket_seconds": (float, "in which all who are admitted open their ticket page; 0: nobody does"),
    "pay_seconds": (float, "in which all units are paid"),
    "busy": (float, "share of a core that is used at most"),
    "hours": (float, "for which machines are paid"),
}


class Command(BaseCommand):
    help = "Say what a planned sale needs, from measured unit costs: processes, memory, machines, what is bound first."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        defaults = {each.name: None if each.default is MISSING else each.default for each in fields(PlannedSale)}
        for name, (kind, text) in HELP.items():
            default = defaults[name]
            shown = text if default is None else f"{text} ({default:g})"
            parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=shown)
        parser.add_argument("--kept", action="store_true", help="a proxy in front keeps its connections open")
        parser.add_argument("--json", action="store_true", help="print as JSON")
        parser.add_argument("--table", action="store_true", help="print the tables of docs/scaling.md instead")
        parser.add_argument(
            "--costs", type=Path, metavar="FOLDER", help="costs from the pages of benchmarks in FOLDER (gate.json, ...)"
        )
        parser.add_argument("--save", action="store_true", help="keep the costs of --costs for every later answer")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            known = costs.measured_costs(options["costs"]) if options["costs"] else costs.kept_costs()
        except costs.CostsUnreadable as error:
            raise CommandError(str(error)) from error
        if options["save"]:
            if not options["costs"]:
                raise CommandError("--save keeps the costs of --costs: name its folder")
            costs.KEPT.write_text(costs.as_json(known))
        if options["table"]:
            self.stdout.write(presentation.table_of(known))
        elif options["buyers"] is not None or not options["save"]:
            self.stdout.write(_answer(options, known=known))


def _answer(options: dict[str, Any], *, known: costs.Costs) -> str:
    if options["buyers"] is None:
        raise CommandError("--buyers is needed: how many press the button")
    try:
        plan = PlannedSale(kept=options["kept"], **{name: options[name] for name in HELP})
    except ValueError as error:
        raise CommandError(str(error)) from error
    show = presentation.as_json if options["json"] else presentation.as_text
    return show(plan, needs_of(plan, costs=known), costs=known)
