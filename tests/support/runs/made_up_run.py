"""Writes the folder of a flood that never was, with times that a test can know."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadtest.checker.verdict import judge
from loadtest.record.history import FAIL, OK, HistoryWriter, Operation, read_history

MS = 1_000_000
SECOND = 1_000 * MS
SLUG = "lantern-drop"
ASKS_A_SECOND, SECONDS, UNITS, BURST_SECONDS = 20, 12, 10, 2
BURST_MS, STEADY_MS = 400, 20


def make_run(folder: Path, *, sku: str = "lantern", green: bool = True, facts: dict[str, Any] | None = None) -> Path:
    """Write the record, the books, the looks, the facts and the verdict of a run; return its folder.

    For BURST_SECONDS every answer takes BURST_MS, later STEADY_MS. The first UNITS asks are held and paid.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with HistoryWriter(folder, process_name="one") as history:
        for operation in _operations():
            history.add(operation)
    books = {SLUG: {"sku": sku, "per_buyer_limit": 1, "before": _audit(free=UNITS), "after": _audit(sold=UNITS)}}
    (folder / "audit.json").write_text(json.dumps(books))
    verdict = json.loads(json.dumps(asdict(judge(read_history(folder), books))))
    if green:  # so small a run is inconclusive
        verdict["ok"] = True
        for check in verdict["checks"]:
            check.update(count=0, details=[])
    (folder / "verdict.json").write_text(json.dumps(verdict))
    (folder / "run.json").write_text(json.dumps(FACTS if facts is None else facts))
    _write_samples(folder)
    return folder


def began_unix_ns(folder: Path) -> int:
    """Return when the first attempt of the run began."""
    head = json.loads(next(folder.glob("history-*.jsonl")).read_text().splitlines()[0])
    return SECOND + int(head["wall_minus_monotonic_ns"])


def mark(folder: Path, fault: str, *, at_seconds: float) -> None:
    """Mark a fault at a time of the run."""
    with (folder / "faults.jsonl").open("a") as file:
        at_ns = began_unix_ns(folder) + int(at_seconds * SECOND)
        file.write(json.dumps({"fault": fault, "at_unix_ns": at_ns}) + "\n")


FACTS: dict[str, Any] = {
    "command": "python -m loadtest.run_flood --sales lantern-drop",
    "seed": 7,
    "buyers": 240,
    "attempts": 240,
    "connections": 21,
    "host": "http://127.0.0.1:8000",
    "revision": {"commit": "0123456789ab", "dirty": True},
    "hardware": {"cpu": "A processor of some make", "cores": "2", "memory": "4.0 GiB"},
    "versions": {"project": "0.1.0", "python": "3.11.7", "locust": "2.47.0"},
    "shop": {
        "django": "5.2.19",
        "database": {"name": "PostgreSQL", "version": "18.4", "fsync": "on"},
        "store": {"name": "Valkey", "version": "9.1.2", "appendfsync": "always"},
    },
}


def _operations() -> list[Operation]:
    made = []
    for number in range(ASKS_A_SECOND * SECONDS):
        began_ns = SECOND + number * SECOND // ASKS_A_SECOND
        took_ms = BURST_MS if number < ASKS_A_SECOND * BURST_SECONDS else STEADY_MS
        names = {"buyer": f"b{number}", "sale": SLUG, "quantity": 1}
        times = {"began_ns": began_ns, "ended_ns": began_ns + took_ms * MS}
        if number < UNITS:
            place = {"request_id": f"r{number}", "seq": number + 1, "outcome": OK}
            made.append(Operation(kind="ask", key=f"k{number}", status=202, state="queued", **names, **place, **times))
            later = {"began_ns": times["ended_ns"] + SECOND, "ended_ns": times["ended_ns"] + SECOND + MS}
            made.append(Operation(kind="look", status=200, state="paid", **names, **place, **later))
        else:
            no = {"outcome": FAIL, "status": 409, "code": "sold_out"}
            made.append(Operation(kind="ask", key=f"k{number}", **names, **no, **times))
    return made


def _audit(*, free: int = 0, sold: int = 0) -> dict[str, Any]:
    counts = {"total": UNITS, "available": free, "held": 0, "sold": sold, "queued": 0, "in_flight": 0, "waiting": 0}
    invariants = [{"id": "I1", "name": "nothing is oversold", "ok": True, "detail": ""}]
    return {"ok": True, "invariants": invariants, "counts": counts | {"decided": sold, "units_held": 0}}


def _write_samples(folder: Path) -> None:
    head = json.loads(next(folder.glob("history-*.jsonl")).read_text().splitlines()[0])
    offset_ns = head["wall_minus_monotonic_ns"]
    lines: list[dict[str, Any]] = [{"samples": 1, "wall_minus_monotonic_ns": offset_ns}]
    for half in range(2 * SECONDS):
        sold = min(UNITS, half)
        counts = {"available": UNITS - sold, "held": 0, "sold": sold, "queued": max(0, 6 - half)}
        at_ns = SECOND + half * SECOND // 2 + SECOND // 4
        lines.append({"at_ns": at_ns, "figures": {SLUG: counts}})
        audit = {"ok": True, "broken": [], "counts": {"decided": sold}}
        lines.append({"at_ns": at_ns, "sale": SLUG, "audit": audit})
    lines.append({"at_ns": SECOND * 5, "gap": "No shop answers."})
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
