"""Names what a reconciler found, whether it was mended, and writes it for people and programs. Never mends anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog

from inventory.telemetry.measures import Tally

log = structlog.get_logger(__name__)

# So many are named in a log line or a report; all are counted.
MAX_NAMED = 100

REPAIRED = "repaired"  # it was wrong and is right now
FOUND = "found"  # it is wrong and would be mended (a dry run)
LEFT = "left"  # it is wrong, but something moves: the next look decides
ALARM = "alarm"  # it is wrong and a person must look
DRIFTS = Tally(
    "fairdrop_drifts", "Differences that were found, by what was done", label="done",
    known=(REPAIRED, FOUND, LEFT, ALARM),
)  # fmt: skip


class Drift(NamedTuple):
    """One difference. kind: as docs/operations.md lists them; name: the request, buyer or SKU that it is about."""

    kind: str
    sku: str
    name: str
    detail: str
    done: str


def log_drifts(drifts: Sequence[Drift]) -> None:
    """Log each alarm by name, and what was mended in one line a kind; count all of them."""
    for drift in drifts:
        DRIFTS.add(drift.done)
        if drift.done == ALARM:
            log.error(
                "the books disagree; nothing was changed",
                action="reconcile_alarm",
                kind=drift.kind,
                sku=drift.sku,
                name=drift.name,
                detail=drift.detail,
            )
    mended = [drift for drift in drifts if drift.done == REPAIRED]
    for (kind, sku), count in Counter((drift.kind, drift.sku) for drift in mended).items():
        names = [drift.name for drift in mended if (drift.kind, drift.sku) == (kind, sku)][:MAX_NAMED]
        log.warning("drift mended", action="reconcile_repaired", kind=kind, sku=sku, count=count, names=names)


def as_dict(skus: Sequence[str], drifts: Sequence[Drift]) -> dict[str, Any]:
    """Return {ok, skus, counts, drifts}: ok when nobody has to look, counts by what was done and kind."""
    counts: dict[str, dict[str, int]] = {}
    named: list[dict[str, str]] = []
    for drift in drifts:
        kinds = counts.setdefault(drift.done, {})
        kinds[drift.kind] = kinds.get(drift.kind, 0) + 1
        if kinds[drift.kind] <= MAX_NAMED:
            named.append(drift._asdict())
    return {"ok": ALARM not in counts, "skus": list(skus), "counts": counts, "drifts": named}


def as_text(report: dict[str, Any]) -> str:
    """Return a report of as_dict as lines for people."""
    lines = [f"{len(report['skus'])} SKUs compared: {', '.join(report['skus']) or 'none'}"]
    for done, kinds in report["counts"].items():
        lines += [f"{'✗' if done == ALARM else '·'} {done} {count:,} × {kind}" for kind, count in kinds.items()]
    lines += [f"    {each['sku']} {each['kind']} {each['name']}: {each['detail']}" for each in report["drifts"]]
    return "\n".join([*lines, "✓ nobody has to look" if report["ok"] else "✗ somebody has to look"])
