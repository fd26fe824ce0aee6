"""Says of each stage of a shape how many came, how fast they were served, and how far the shop kept up.
Never mixes stages: a click counts where it was planned, however late its answer came.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtest.checker.latency import Wait, due_ns, wait_of
from loadtest.checker.load_generator import begins_ns
from loadtest.plan.arrivals import NS, Arrivals, Stage
from loadtest.record.files import write_whole
from loadtest.record.history import OK, Operation, read_history
from loadtest.users.contract import is_refusal

PLAN_FILE, STAGES_FILE = "plan.json", "stages.json"
# A shop keeps up while nearly all it is asked is answered in time, also counting the wait to be let in.
IN_TIME_SECONDS = 1.0
KEEPS_UP_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class StageFigures:
    """One stage. in_time: the share of its clicks with a definite answer within a second of when they were planned."""

    name: str
    buyers_per_second: float
    clicks: int
    answered_per_second: float
    in_time: float
    wait: Wait

    @property
    def keeps_up(self) -> bool:
        """Say whether the shop kept up."""
        return self.in_time >= KEEPS_UP_SHARE


def write_plan(folder: Path, arrivals: Arrivals, *, shape: str, mix: str) -> None:
    """Keep the plan with the record."""
    plan = {"shape": shape, "mix": mix, "seed": arrivals.seed, "buyers": arrivals.total}
    plan["stages"] = [asdict(stage) for stage in arrivals.stages]
    write_whole(folder / PLAN_FILE, json.dumps(plan, indent=2) + "\n")


def read_plan(folder: Path) -> Arrivals | None:
    """Return the plan of a record; None when nothing was planned."""
    path = folder / PLAN_FILE
    if not path.exists():
        return None
    plan = json.loads(path.read_text())
    return Arrivals(tuple(Stage(**stage) for stage in plan["stages"]), int(plan["seed"]))


def by_stage(operations: list[Operation], arrivals: Arrivals, *, begins: dict[str, int]) -> list[StageFigures]:
    """Return the figures of each stage that lasts; `begins`: when the doors opened, on each clock (ns)."""
    shares: list[list[Operation]] = [[] for _ in arrivals.stages]
    for operation in operations:
        if operation.kind == "ask" and operation.planned_ns:
            shares[arrivals.stage_at(due_ns(operation) - begins.get(operation.clock, 0))].append(operation)
    return [_figures(stage, asks) for stage, asks in zip(arrivals.stages, shares, strict=True)]


def _figures(stage: Stage, asks: list[Operation]) -> StageFigures:
    clicks = {(ask.buyer, ask.key, ask.planned_ns) for ask in asks}  # a click that was sent again is one click
    waits = [ask.ended_ns - due_ns(ask) for ask in asks if ask.outcome == OK or is_refusal(ask)]
    in_time = sum(wait <= IN_TIME_SECONDS * NS for wait in waits)
    return StageFigures(
        name=stage.name,
        buyers_per_second=round(stage.buyers / max(stage.seconds, 0.001), 1),
        clicks=len(clicks),
        answered_per_second=round(in_time / max(stage.seconds, 0.001), 1),
        in_time=round(in_time / max(len(clicks), 1), 4),
        wait=wait_of(waits),
    )


def write_stages(folder: Path) -> list[dict[str, Any]]:
    """Put the stages' figures alongside the verdict; return them, [] for a run without a plan."""
    arrivals = read_plan(folder)
    if arrivals is None:
        return []
    stages = by_stage(read_history(folder).operations, arrivals, begins=begins_ns(folder))
    rows = [asdict(stage) | {"keeps_up": stage.keeps_up} for stage in stages]
    write_whole(folder / STAGES_FILE, json.dumps(rows, indent=2) + "\n")
    return rows


def stages_table(rows: list[dict[str, Any]]) -> str:
    """Return the stages as text."""
    head = f"{'stage':<20} {'buyers/s':>9} {'clicks':>7} {'in time/s':>10} {'in time':>8}"
    lines = [f"{head} {'p50 ms':>9} {'p99 ms':>9}"]
    for row in rows:
        wait, mark = row["wait"], "" if row["keeps_up"] else "  behind"
        share = f"{row['answered_per_second']:>10,.1f} {row['in_time']:>8.1%}"
        text = f"{row['name']:<20} {row['buyers_per_second']:>9,.1f} {row['clicks']:>7,} {share}"
        lines.append(f"{text} {wait['p50_ms']:>9,.1f} {wait['p99_ms']:>9,.1f}{mark}")
    return "\n".join(lines)
