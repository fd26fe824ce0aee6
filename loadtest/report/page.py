"""Puts a run's report together: what is shown, in which order, through one template. Needs no network and no script.
Never leaves a text unescaped: names of sales and faults come from outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loadtest.checker.table import RARE_RESULTS, RESULTS, staff_changes
from loadtest.report import timeline, words
from loadtest.report.charts import STACKED, Chart, Series
from loadtest.report.reading import Look, Run
from loadtest.report.timeline import Point

HERE = Path(__file__).resolve().parent
STOCK = (("sold", "sold", False), ("held", "held", False), ("available", "free", False))
MAX_SMALL_CHARTS = 12
RATE_STEP_SECONDS = 0.5


def page_of(run: Run) -> str:
    """Return the page."""
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.filters["ms"] = words.milliseconds
    style = Markup((HERE / "page.css").read_text())  # noqa: S704 - our own file
    asks = run.admissions + run.refusals
    burst = timeline.burst_end(asks)
    return environment.get_template("page.html").render(
        style=style,
        sentence=words.sentence_of(run.verdict),
        stub=words.stub_of(run.verdict),
        began=words.moment(run.began_unix_ns),
        run=run,
        rate=run.verdict["rate"],
        columns=columns_of(run.verdict["sales"]),
        sales=run.verdict["sales"],
        checks=sorted(run.verdict["checks"], key=lambda check: not check["count"]),
        staff=staff_changes(run.verdict["sales"]),
        audits=audits_of(run.books),
        burst=burst,
        parts=_parts(run, burst=burst),
        charts=[chart for chart in charts_of(run, burst=burst) if not chart.is_empty],
        small_charts=small_charts_of(run),
        facts=words.facts_of(run.facts),
        command=run.facts.get("command") or words.NOT_TOLD,
    )


def columns_of(sales: list[dict[str, Any]]) -> list[tuple[str, list[int]]]:
    """Return the table of sales with a row a measure: the value of each sale, and the sum."""
    faults = sorted({name for sale in sales for name in sale["faults"]} | set(words.STUB), key=_stub_first)
    rare = [name for name in RARE_RESULTS if any(sale["results"].get(name) for sale in sales)]
    rows = {"units": "total", "attempts": "asked", "repeated clicks": "repeated", "wishes": "wishes"}
    table = [(title, [int(sale[name]) for sale in sales]) for title, name in [*rows.items(), ("admitted", "admitted")]]
    table += [
        (name.replace("_", " "), [int(sale["results"].get(name, 0)) for sale in sales]) for name in (*RESULTS, *rare)
    ]
    table += [("moved up", [int(sale["moved_up"]) for sale in sales])]
    table += [("paid too late", [int(sale["paid_late"]) for sale in sales])]
    table += [(name, [int(sale["faults"].get(name, 0)) for sale in sales]) for name in faults]
    return [(title, [*values, sum(values)]) for title, values in table]


def _stub_first(name: str) -> tuple[int, str]:
    return (words.STUB.index(name) if name in words.STUB else len(words.STUB), name)


def audits_of(books: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the invariants of the shop's own audit, each with the sales for which it does not hold."""
    found: dict[str, dict[str, Any]] = {}
    for slug, book in books.items():
        for one in (book.get("after") or {}).get("invariants", []):
            row = found.setdefault(
                str(one.get("id")), {"id": one.get("id"), "name": one.get("name"), "sales": 0, "broken": []}
            )
            row["sales"] += 1
            if not one.get("ok"):
                row["broken"].append(f"{slug}: {one.get('detail')}")
    return sorted(found.values(), key=lambda row: not row["broken"])


def charts_of(run: Run, *, burst: float) -> list[Chart]:
    """Return the charts of all sales together."""
    sales, step = list(run.books), timeline.step_for(run.seconds)
    stock = [Series(title, title, _counted(run, name, sales), dashed) for name, title, dashed in STOCK]
    units = sum(sale["total"] for sale in run.verdict["sales"])
    line = [Series("in line", "act", _counted(run, "queued", sales))]
    decided = _within(run, timeline.over_time(run.audits, "decided", sales=sales))
    pace = timeline.growth_a_second(decided, step=max(RATE_STEP_SECONDS, step))
    attempts = [
        Series("refused", "soft", timeline.a_second(run.refusals, step=step)),
        Series("admitted", "act", timeline.a_second(run.admissions, step=step)),
    ]
    answers, seen = _percentiles(run.admissions + run.refusals, step), _percentiles(run.decisions, step)
    common: dict[str, Any] = {"seconds": run.seconds, "burst": burst, "faults": run.faults}
    return [
        Chart(key="stock", title="Where the units are", meaning="Units sold, held and free, all sales together.",
              unit="units", series=stock, kind=STACKED, top=float(units), wide=True, **common),
        Chart(key="line", title="The line", meaning="Units asked for by those in line and in flight.",
              unit="units", series=line, **common),
        Chart(key="decisions", title="Decisions", meaning="How fast the shop's own count of decisions grew.",
              unit="a second", series=[Series("decisions", "good", pace)], **common),
        Chart(key="attempts", title="Attempts", meaning="Purchase attempts that got an answer, by its kind.",
              unit="a second", series=attempts, kind=STACKED, **common),
        Chart(key="answer", title="From click to answer", meaning="How long an attempt took to be admitted or refused.",
              unit="ms", series=answers, **common),
        Chart(key="decision", title="From click to decision", meaning="How long until buyers in line saw what became "
              "of their wish, looking included.", unit="ms", series=seen, **common),
    ]  # fmt: skip


def small_charts_of(run: Run) -> list[Chart]:
    """Return the burn-down of each sale, when there are several and not too many."""
    if not 1 < len(run.books) <= MAX_SMALL_CHARTS:
        return []
    totals = {sale["sale"]: float(sale["total"]) for sale in run.verdict["sales"]}
    return [
        Chart(
            key=f"stock-{number}",
            title=str(book.get("sku") or slug),
            meaning=f"Units of {slug}: sold, held and free.",
            unit="units",
            series=[Series(title, title, _counted(run, name, [slug]), dashed) for name, title, dashed in STOCK],
            seconds=run.seconds,
            faults=run.faults,
            kind=STACKED,
            top=totals.get(slug, 0.0),
        )
        for number, (slug, book) in enumerate(run.books.items())
    ]


def _counted(run: Run, name: str, sales: list[str]) -> list[Point]:
    """Return a count over the whole run: as the audit had it before, as each look had it, as the audit had it after."""
    ends = [
        Look(at, slug, {name: int(counts[name])})
        for slug in sales
        for at, moment in ((0.0, "before"), (run.seconds, "after"))
        if (counts := (run.books[slug].get(moment) or {}).get("counts", {})).get(name) is not None
    ]
    between = [look for look in run.figures if 0 < look.at < run.seconds]
    return timeline.over_time([*ends, *between], name, sales=sales)


def _within(run: Run, points: Any) -> list[Point]:
    return [(at, value) for at, value in points if 0 <= at <= run.seconds]


def _percentiles(waits: Any, step: float) -> list[Series]:
    return [
        Series("slowest hundredth (p99)", "warn", timeline.percentile(waits, share=0.99, step=step), True),
        Series("middle (p50)", "act", timeline.percentile(waits, share=0.5, step=step)),
    ]


def _parts(run: Run, *, burst: float) -> list[timeline.Parts]:
    named = {"to admission": run.admissions, "to refusal": run.refusals, "to decision seen": run.decisions}
    return [timeline.in_parts(name, waits, end=burst) for name, waits in named.items()]
