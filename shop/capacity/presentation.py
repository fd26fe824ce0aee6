"""Says what a planned sale needs: for people, as JSON, and as the tables of docs/scaling.md. Pure.
Never computes a need.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from shop.capacity.costs import Cost, Costs
from shop.capacity.prediction import BATCH, POSTGRES, REDIS, SETTLEMENT, WEB, Needs, PlannedSale, needs_of

# The table: each crowd with one SKU and with many, one unit for each ten buyers.
CROWDS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
MANY_SKUS, BUYERS_A_UNIT, READS_IN_SECONDS = 100, 10, 60.0
HEAD = ("buyers", "SKUs", "units", "presses/s", "full first", "web", "settlers", "Redis masters", "PostgreSQL machines",
        "Redis GiB", "all decided after", "bound by", "machines", "cores", "money")  # fmt: skip


def as_text(plan: PlannedSale, needs: Needs, *, costs: Costs) -> str:
    """Return the answer for people."""
    rows = [("part", "load of one", "needed"), *(_row(needs, name) for name in (WEB, SETTLEMENT, REDIS, POSTGRES))]
    lines = [
        f"{plan.buyers:,} buyers press within {plan.seconds:g} s: {needs.presses_a_second:,.0f} presses a second; "
        f"{needs.admitted:,} are admitted for {plan.units:,} units of {plan.skus:,} SKU{'s' * (plan.skus > 1)}.",
        "",
        *_columns(rows),
        "",
        f"Full first, with one of each: {needs.first}.",
        f"All are decided {needs.decided_after_seconds:,.1f} s after the opening{_walls(needs)}.",
        f"Memory: {needs.redis_gib:,.2f} GiB in Redis for the lines, {needs.processes_gib:,.2f} GiB for web and "
        "settlers; PostgreSQL's was not measured.",
        _payments(needs),
        _money(plan, needs, costs=costs),
        f"Unit costs: {'; '.join(runs_of(costs))}. `--json` has each.",
    ]
    return "\n".join(lines)


def as_json(plan: PlannedSale, needs: Needs, *, costs: Costs) -> str:
    """Return plan, needs and every cost as one JSON object; no bound on how many can share is null."""
    found = asdict(needs)
    for part in found["parts"]:
        part["most"] = None if part["most"] == float("inf") else part["most"]
    whole = {"plan": asdict(plan), "admitted": plan.admitted, "needs": found, "costs": asdict(costs)}
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)


def table_of(costs: Costs) -> str:
    """Return the tables of docs/scaling.md: what one core does, and what crowds of 1,000 to 10,000,000 need."""
    crowds = [_crowd(replace(_plan(buyers), skus=skus), costs=costs) for buyers in CROWDS for skus in (1, MANY_SKUS)]
    cores = [(name, *_cost(cost)) for name, cost in costs.units.items()]
    return "\n\n".join(
        (
            _markdown(("unit cost", "measured", "unit", "figure", "from"), cores),
            _markdown(HEAD, crowds),
        )
    )


def runs_of(costs: Costs) -> list[str]:
    """Return each run from which the costs are, once."""
    found = {
        f"{cost.source} of {cost.date}, revision {cost.revision}, {cost.cpu}": None for cost in costs.units.values()
    }
    return list(found)


def _plan(buyers: int) -> PlannedSale:
    return PlannedSale(buyers=buyers, units=buyers // BUYERS_A_UNIT, readers=buyers / READS_IN_SECONDS)


def _crowd(plan: PlannedSale, *, costs: Costs) -> tuple[str, ...]:
    needs = needs_of(plan, costs=costs)
    needed = (f"{needs.part(name).needed:,}" for name in (WEB, SETTLEMENT, REDIS, POSTGRES))
    return (
        f"{plan.buyers:,}",
        f"{plan.skus:,}",
        f"{plan.units:,}",
        f"{needs.presses_a_second:,.0f}",
        needs.first,
        *needed,
        f"{needs.redis_gib:,.2f}",
        f"{needs.decided_after_seconds:,.1f} s",
        ", ".join(needs.walls) or "its presses",
        f"{needs.machines:,}",
        f"{needs.cores:,}",
        f"{needs.price:,.0f} {costs.machine.currency}",
    )


def _cost(cost: Cost) -> tuple[str, ...]:
    value = f"{cost.value:,.0f}" if cost.value >= 100 else f"{cost.value:,.2f}"
    return value, cost.unit, cost.figure, f"{cost.source}, {cost.date}"


def _row(needs: Needs, name: str) -> tuple[str, ...]:
    part = needs.part(name)
    most = f" (no more than {part.most:,.0f} can share it)" if part.needed >= part.most else ""
    return name, f"{part.load:,.2f}", f"{part.needed:,}{most}"


def _walls(needs: Needs) -> str:
    if not needs.walls:
        return ""
    alone = max(needs.part(name).alone_seconds for name in needs.walls)
    return (
        f"; one SKU's work in {' and '.join(needs.walls)} takes {alone:,.1f} s, whatever is added (batches of {BATCH})"
    )


def _money(plan: PlannedSale, needs: Needs, *, costs: Costs) -> str:
    machine, price = costs.machine, f"{needs.price:,.2f} {costs.machine.currency} for {plan.hours:g} h"
    return (
        f"Machines: {needs.machines} with {needs.cores} cores in all, a second one for each included: {price} "
        f"({machine.name}, {machine.date}; {machine.assumes}). Price: {machine.source}"
    )


def _payments(needs: Needs) -> str:
    proved = f"{needs.payments_proved:,.0f} a second were measured, on one SKU"
    enough = needs.payments_a_second <= needs.payments_proved
    return f"Payments: {needs.payments_a_second:,.1f} a second; {proved}{'' if enough else ', and no more'}."


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _markdown(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    rule = ["---:" if cell[:1].isdigit() else "---" for cell in rows[0]]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
