"""Draws a verdict for a terminal: a row a SKU, a line of totals, a mark for each check, waits and rates.
Never decides anything and needs only the verdict's JSON form, so run_flood can draw it from the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GREEN, RED, BOLD, DIM, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
FAULT_COLUMNS = ("oversold", "sold twice", "lost", "out of order")
RESULTS = ("paid", "expired", "cancelled", "refunded", "sold_out", "refused")
# Nobody should end like this: shown only when somebody did.
RARE_RESULTS = ("held", "waitlisted", "standby", "waiting", "unknown")
# Checks that say whether the run can be believed, apart from those about the shop.
ABOUT_THE_RUN = ("inconclusive", "audit missing", "record cut off", "load generator")


def render(verdict: dict[str, Any], *, colour: bool = False) -> str:
    """Return the whole text."""
    paint = _painter(colour=colour)
    lines = [*_table(verdict["sales"], paint=paint), "", *_checks(verdict["checks"], paint=paint), ""]
    lines += [*_figures(verdict), *_record(verdict.get("record")), *staff_changes(verdict["sales"])]
    return "\n".join([*lines, "", _sentence(verdict, paint=paint)])


Paint = Callable[[str, str], str]


def _painter(*, colour: bool) -> Paint:
    return lambda text, code: f"{code}{text}{PLAIN}" if colour else text


def _table(sales: list[dict[str, Any]], *, paint: Paint) -> list[str]:
    """Draw the rows; the last one adds them up."""
    rare = [name for name in RARE_RESULTS if any(sale["results"].get(name) for sale in sales)]
    results = [name.replace("_", " ") for name in (*RESULTS, *rare)]
    head = ["SKU", "units", "asked", "wishes", "admitted", *results, *FAULT_COLUMNS]
    rows = [[sale["sku"], *_numbers(sale, rare=rare)] for sale in sales]
    totals = ["total", *[sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]]
    widths = [max(len(_text(row[n])) for row in [head, *rows, totals]) for n in range(len(head))]
    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    body = [_row(row, widths, paint=paint, faults_from=len(head) - len(FAULT_COLUMNS)) for row in [*rows, totals]]
    return [paint(_row(head, widths), BOLD), rule, *body[:-1], rule, body[-1]]


def _numbers(sale: dict[str, Any], *, rare: list[str]) -> list[int]:
    results = sale["results"]
    common = [sale["total"], sale["asked"], sale["wishes"], sale["admitted"]]
    ends = [results.get(name, 0) for name in (*RESULTS, *rare)]
    return [*common, *ends, *[sale["faults"].get(name, 0) for name in FAULT_COLUMNS]]


def _row(cells: list[Any], widths: list[int], *, paint: Paint | None = None, faults_from: int = 10**6) -> str:
    padded = []
    for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text = f"{_text(cell):<{width}}" if place == 0 else f"{_text(cell):>{width}}"
        padded.append(paint(text, RED if cell else GREEN) if paint and place >= faults_from else text)
    return "  ".join(padded)


def _text(cell: Any) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _checks(checks: list[dict[str, Any]], *, paint: Paint) -> list[str]:
    """Draw a line a check: the mark, the name, and what it promises or what is wrong."""
    lines = []
    width = max(len(check["name"]) for check in checks)
    for check in checks:
        mark = paint("✗", RED) if check["count"] else paint("✓", GREEN)
        count = f"{check['count']:,}" if check["count"] else "none"
        lines.append(f"{mark} {check['name']:<{width}}  {count:>6}  {paint(check['meaning'], DIM)}")
        lines += [f"    {paint(detail, RED)}" for detail in check["details"]]
    return lines


def _figures(verdict: dict[str, Any]) -> list[str]:
    rate = verdict["rate"]
    waits = [
        ("to admission", "admission"),
        ("to refusal", "refusal"),
        ("to decision seen", "decision"),
        ("to payment", "payment"),
    ]
    lines = [
        f"The rush: {rate['requests']:,} requests in {rate['seconds']:.1f} s: {rate['requests_per_second']:,} "
        f"a second, of these {rate['attempts_per_second']:,} purchase attempts a second"
    ]
    for label, name in waits:
        wait = verdict[name]
        figures = f"p50 {wait['p50_ms']:>8,.1f} ms   p99 {wait['p99_ms']:>8,.1f} ms   max {wait['max_ms']:>8,.1f} ms"
        lines.append(f"{label:<17} {figures}   ({wait['count']:,})")
    if (load := verdict.get("load")) and load["processes"]:
        void = ": these waits are VOID, they are its own as well as the shop's" if load["void"] else ""
        lines.append(f"The load generator's busiest process used {load['cpu_share']:.0%} of a core{void}")
    return lines


def _sentence(verdict: dict[str, Any], *, paint: Paint) -> str:
    """Say the verdict in one sentence."""
    units, sold, free, moved_up = (
        sum(sale[name] for sale in verdict["sales"]) for name in ("total", "units_sold", "units_free", "moved_up")
    )
    if verdict["ok"]:
        told = f"✓ {sold:,} of {units:,} units were sold, each once, and {free:,} are free; {moved_up:,} came back and"
        return paint(f"{told} went to the next in line.", GREEN)
    failed = [check["name"] for check in verdict["checks"] if check["count"]]
    if set(failed) <= set(ABOUT_THE_RUN):
        return paint(f"✗ This run proves nothing: {', '.join(failed)}.", RED)
    return paint(f"✗ The books do not balance: {', '.join(failed)}.", RED)


def staff_changes(sales: list[dict[str, Any]]) -> list[str]:
    """Say where checks had to leave room: it is not known when the units that staff put in or took out were free."""
    return [
        f"Staff changed the stock of {sale['sku']} meanwhile: {sale['loaded']:,} in, {sale['taken_away']:,} out. "
        "It is not known when, so the checks cannot see that many units oversold, undersold or given out of order"
        for sale in sales
        if sale.get("loaded") or sale.get("taken_away")
    ]


def _record(record: dict[str, Any] | None) -> list[str]:
    """Say what there was to judge by."""
    if record is None:
        return []
    processes = "1 process" if record["files"] == 1 else f"{record['files']:,} processes"
    line = f"The record: {record['operations']:,} calls of {processes}, {record['unknown']:,} without a definite answer"
    if record["unended"]:
        line += f" ({record['unended']:,} of them cut off with their process)"
    if record["clocks"] > 1:
        error_ms = record["wall_error_ms"]
        compared = "not compared with each other" if error_ms is None else f"taken to agree within {error_ms:g} ms"
        line += f"; {record['clocks']} clocks, {compared}"
    return [line]
