"""Shows what was measured of the whole shop: tables, what bounds the spike and the overload, curves. Pure.
Never excuses a missed floor.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loadtest.bench.harness.charts import Curve, curves
from loadtest.bench.harness.machine import PARTS, WEB, microseconds_each
from loadtest.bench.harness.report import Comparison, number, quantile, ratio
from loadtest.bench.shop.report import ADMITTED, MAX_SPREAD, REFUSED, Results

if TYPE_CHECKING:
    from loadtest.bench.gate.end_to_end import CommandCost
    from loadtest.bench.shop.costs import Cost, Costs
    from loadtest.bench.shop.overload import OverloadRun
    from loadtest.bench.shop.spike import Spike

SHARES = (0.5, 0.9, 0.99, 1.0)
COMMANDS = ("command", "calls a decision", "µs a decision")
MIN_SHOWN_US = 0.02
HEAD = ("CPU µs for an answer", *PARTS, "together", "most answers/s")


def comparisons_of(results: Results, *, cores: int) -> list[Comparison]:
    """Return every table. cores: that carry everything."""
    return [
        redis_commands(results.road.redis),
        _spikes(results),
        spike_shares(results.spikes, results.noop_spike, cores=cores),
        _steps(results.overload),
        overload_shares(results.overload, cores=cores),
        _costs(results.costs),
    ]


def redis_commands(costs: Mapping[str, CommandCost]) -> Comparison:
    """Return what each command took of Redis for one sustained decision, the longest first."""
    rows = [(name, f"{cost.calls:.3f}", f"{cost.us:.2f}") for name, cost in costs.items() if cost.us >= MIN_SHOWN_US]
    note = (
        "By the clock of Redis. The time of a script (evalsha) holds that of the commands that it runs, which stand "
        "under their own names too."
    )
    return Comparison(title="Redis for a sustained decision, by command", head=COMMANDS, rows=rows, note=note)


def _row(name: str, cpu_us: Mapping[str, float], *, cores: int) -> tuple[str, ...]:
    together = sum(cpu_us[part] for part in PARTS)
    return name, *(number(cpu_us[part]) for part in PARTS), number(together), number(ratio(cores * 1e6, together))


def spike_shares(spikes: Sequence[Spike], noop: Spike, *, cores: int) -> Comparison:
    """Return the CPU time of an answer in the middle spike alongside the no-op server's, and what follows from it."""
    middle = sorted(spikes, key=lambda spike: quantile(spike.waits_ms.get(REFUSED, []), 0.99))[len(spikes) // 2]
    cpu = {name: _each(spike) for name, spike in (("no-op server", noop), ("shop", middle))}
    nothing, shop = cpu["no-op server"], cpu["shop"]
    total = sum(shop.values())
    ours = max(shop[WEB] - nothing[WEB], 0.0)
    server = shop[WEB] - ours
    shares = {
        "the generators": shop[PARTS[0]],
        "the HTTP server": server,
        "our Python": ours,
        "settler and stores": total - shop[PARTS[0]] - shop[WEB],
    }
    least_ms = quantile(noop.waits_ms.get(ADMITTED, []), 0.99)
    refused_ms = statistics.median(quantile(spike.waits_ms.get(REFUSED, []), 0.99) for spike in spikes)
    parts = ", ".join(f"{name} {ratio(value, total):.0%}" for name, value in shares.items())
    note = (
        f"All of it runs on {cores} cores, and nearly everybody is refused, so the p99 of the refused is the time "
        f"until the whole crowd has been served. Of the CPU time of the shop's spike: {parts}; the HTTP server's is "
        f"what the no-op server used. The no-op server's own p99 is {number(least_ms)} ms for the same crowd from the "
        f"same generators; the refused wait {number(ratio(refused_ms, least_ms))} times as long."
    )
    rows = [_row(name, each, cores=cores) for name, each in cpu.items()]
    return Comparison(title="What bounds the spike", head=HEAD, rows=rows, note=note)


def _each(spike: Spike) -> dict[str, float]:
    return microseconds_each(spike.cpu_seconds, answers=sum(spike.statuses.values()) + spike.shed)


def overload_shares(found: OverloadRun, *, cores: int) -> Comparison:
    """Return the CPU time of an answer at the knee and around the overload, and what follows from it."""
    knee, storm = (sum(each.get(part, 0.0) for part in PARTS) for each in (found.knee.cpu_us, found.cpu_us))
    seconds = found.end - found.begin
    decided = sum(found.decided[found.begin : found.end])
    note = (
        f"{cores} cores carry everything, the generator too. At the knee an answer costs {number(knee)} µs of CPU, "
        f"which leaves at most {number(ratio(cores * 1e6, knee))} a second; around the overload {number(storm)} µs, at "
        f"most {number(ratio(cores * 1e6, storm))}. Only {found.sent:.0%} of the offer could be sent: the rest found "
        f"all connections waiting and gave up within a second. In the {seconds} s {number(decided)} were decided."
    )
    rows = [
        _row(name, {part: each.get(part, 0.0) for part in PARTS}, cores=cores)
        for name, each in (("knee", found.knee.cpu_us), ("overload", found.cpu_us))
    ]
    return Comparison(title="What bounds the overload", head=HEAD, rows=rows, note=note)


def _spikes(results: Results) -> Comparison:
    crowds = {"no-op server": results.noop_spike}
    crowds |= {f"shop, {place}": spike for place, spike in enumerate(results.spikes, start=1)}
    head = ("spike", "answer", "buyers", *(f"p{share * 100:g} ms" for share in SHARES), "last decision s", "503 again")
    rows = [
        (
            name,
            str(status),
            f"{count:,}",
            *(number(quantile(spike.waits_ms[status], share)) for share in SHARES),
            number(spike.last_decision_seconds) if spike.decided else "",
            f"{spike.shed:,}",
        )
        for name, spike in crowds.items()
        for status, count in spike.statuses.items()
    ]
    return Comparison(title="Spikes, each buyer's wait from the instant", head=head, rows=rows)


def _steps(found: OverloadRun) -> Comparison:
    rows = [
        (
            f"{step.offered:,.0f}",
            f"{step.goodput:,.0f}",
            number(step.wait_p50_ms),
            number(step.wait_p99_ms),
            "yes" if step.keeps_up else "no",
        )
        for step in sorted(found.steps, key=lambda step: step.offered)
    ]
    return Comparison(title="The knee", head=("offered/s", "decided/s", "p50 ms", "p99 ms", "keeps up"), rows=rows)


def _costs(costs: Costs) -> Comparison:
    rows = [
        (f"{count:,}", what, number(cost.cpu_us), number(cost.wall_us), number(cost.bytes))
        for what, curve in (("SKUs", costs.by_skus), ("in line", costs.by_line))
        for count, cost in curve.items()
    ]
    return Comparison(title="Cost of a purchase", head=("how many", "of", "CPU µs", "wall µs", "bytes"), rows=rows)


def picture_of(results: Results) -> str:
    """Return the curves."""
    found, costs = results.overload, results.costs
    panels = [*_pressure_curves(found), *_cost_curves(costs.by_skus, "SKUs"), *_cost_curves(costs.by_line, "in line")]
    text = "The knee, every second around the overload, and the cost of a purchase; the tables have the same"
    return curves(panels, description=text)


def _pressure_curves(found: OverloadRun) -> list[Curve]:
    steps = sorted(found.steps, key=lambda step: step.offered)
    marks = tuple(range(0, len(found.decided) + 1, 10))
    shade = (float(found.begin), float(found.end))
    return [
        Curve(
            title="Decided a second, by what is offered a second",
            lines={
                "decided": [(step.offered, step.goodput) for step in steps],
                "offered": [(step.offered, step.offered) for step in steps],
            },
            marks=[step.offered for step in steps],
        ),
        Curve(
            title="Decided a second, around the overload (shaded), by second",
            lines={"decided": list(enumerate(map(float, found.decided)))},
            marks=marks,
            shade=shade,
        ),
        Curve(
            title="p99 to a 202 in ms, of those who came in each second",
            lines={"p99": list(enumerate(found.p99_ms))},
            marks=marks,
            shade=shade,
        ),
    ]


def _cost_curves(curve: Mapping[int, Cost], what: str) -> list[Curve]:
    cpu = [(count, cost.cpu_us) for count, cost in curve.items()]
    memory = [(count, cost.bytes) for count, cost in curve.items()]
    return [
        Curve(
            title=f"{title}, by {what} (band: ± {MAX_SPREAD:.0%})",
            lines={name: points},
            logarithmic=True,
            band=MAX_SPREAD,
        )
        for title, name, points in (
            ("CPU time a purchase in µs", "CPU", cpu),
            ("Redis memory a purchase in bytes", "bytes", memory),
        )
    ]
