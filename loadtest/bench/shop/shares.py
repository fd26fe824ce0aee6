"""Says what bounds the spike and the overload: the CPU time of every part for one answer. Pure.
Never excuses a missed floor.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loadtest.bench.harness.figures import number, ratio
from loadtest.bench.harness.report import Comparison
from loadtest.bench.harness.shares import PARTS, WEB, microseconds_each
from loadtest.bench.settle.bounds import quantile

if TYPE_CHECKING:
    from loadtest.bench.shop.overload import OverloadRun
    from loadtest.bench.shop.spike import Spike

ADMITTED, REFUSED = 202, 409
HEAD = ("CPU µs for an answer", *PARTS, "together", "most answers/s")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _row(name: str, cpu_us: Mapping[str, float], *, cores: int) -> tuple[str, ...]:
    together = sum(cpu_us[part] for part in PARTS)
    return name, *(number(cpu_us[part]) for part in PARTS), number(together), number(ratio(cores * 1e6, together))


def spike_shares(spikes: Sequence[Spike], noop: Spike, *, cores: int | None = None) -> Comparison:
    """Return the CPU time of an answer in the middle spike alongside the no-op server's, and what follows from it."""
    cores = cores or _cores()
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


def overload_shares(found: OverloadRun, *, cores: int | None = None) -> Comparison:
    """Return the CPU time of an answer at the knee and around the overload, and what follows from it."""
    cores = cores or _cores()
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
