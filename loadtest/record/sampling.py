"""Looks at the shop while a flood runs: the figures of every sale twice a second, an audit of one sale after the other.
Never disturbs the run: a look that fails is written down as a gap, and audits take a tenth of the time at most.
Runs only in the process that sees the whole run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from loadtest.record.clocks import wall_offset_ns
from loadtest.record.history import now_ns
from loadtest.shop_api import ShopApi, ShopError

SAMPLES_FILE = "samples.jsonl"
FIGURES_EVERY_SECONDS = 0.5
AUDIT_EVERY_SECONDS = 1.0
# After an audit that took t seconds there is none for as many times t.
REST_AFTER_AUDIT = 10
# A shop under a flood may take seconds for an audit: an answer that comes late is worth more than a gap.
TIMEOUT_SECONDS = 10.0
FIGURES = ("available", "held", "sold", "queued")


class Sampler:
    """The looks at the shop in one run."""

    def __init__(self, api: ShopApi, *, sales: dict[str, dict[str, Any]], folder: Path) -> None:
        """sales: slug → {"sku", "total"} (None: not known); the looks are written to samples.jsonl in `folder`."""
        self._api = api
        self.sales = sales
        self.figures: dict[str, dict[str, int]] = {}
        self.audits: dict[str, dict[str, Any]] = {}
        self.gaps = 0
        self.stopped = False
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / SAMPLES_FILE
        self._path.write_text("")
        self._put({"samples": 1, "wall_minus_monotonic_ns": wall_offset_ns()})

    def watch_figures(self, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Look at the figures until stopped."""
        while not self.stopped:
            began = time.monotonic()
            self.look_at_figures()
            sleep(max(0.05, FIGURES_EVERY_SECONDS - (time.monotonic() - began)))

    def watch_audits(self, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Audit one sale after the other until stopped."""
        for slug in cycle(self.sales):
            if self.stopped:
                return
            began = time.monotonic()
            self.look_at_audit(slug)
            sleep(max(AUDIT_EVERY_SECONDS, REST_AFTER_AUDIT * (time.monotonic() - began)))

    def look_at_figures(self) -> None:
        """Read the figures of all sales once and write them down."""

        def read() -> dict[str, Any]:
            self.figures |= self._read_figures()
            return {"figures": {slug: self.figures[slug] for slug in self.sales if slug in self.figures}}

        self._look(read)

    def look_at_audit(self, slug: str) -> None:
        """Audit one sale once and write down its counts and which invariants are broken."""

        def read() -> dict[str, Any]:
            audit = self._api.audit(slug)
            broken = [f"{one.get('id')} {one.get('name')}" for one in audit.get("invariants", []) if not one.get("ok")]
            self.audits[slug] = {"ok": bool(audit.get("ok")), "broken": broken, "counts": audit.get("counts", {})}
            return {"sale": slug, "audit": self.audits[slug]}

        self._look(read)

    def stop(self) -> None:
        """Look no more."""
        self.stopped = True

    def _look(self, read: Callable[[], dict[str, Any]]) -> None:
        began_ns = now_ns()
        try:
            seen = read()
        except (ShopError, OSError, ValueError, TypeError) as error:
            self.gaps += 1
            seen = {"gap": str(error)[:200]}
        # The shop looked somewhere between; the middle is wrong by half the time at most.
        self._put({"at_ns": (began_ns + now_ns()) // 2, **seen})

    def _read_figures(self) -> dict[str, dict[str, int]]:
        return {
            str(sale["slug"]): {name: int(sale[name]) for name in FIGURES if sale.get(name) is not None}
            for sale in self._api.sales()
        }

    def _put(self, line: dict[str, Any]) -> None:
        if self.stopped:
            return  # a look that was under way when the run ended belongs to nobody
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def live_rows(sampler: Sampler | None) -> list[dict[str, Any]]:
    """Return what is known of each sale now, for people who watch; what was never read is None."""
    return [] if sampler is None else [_live_row(sampler, slug, sale) for slug, sale in sampler.sales.items()]


def _live_row(sampler: Sampler, slug: str, sale: dict[str, Any]) -> dict[str, Any]:
    figures, audit = sampler.figures.get(slug, {}), sampler.audits.get(slug, {})
    counts = audit.get("counts", {})
    total = counts.get("total", sale["total"])
    excess = figures.get("held", 0) + figures.get("sold", 0) - (total or 0)
    return {
        "sale": slug,
        "sku": sale["sku"],
        "total": total,
        "free": figures.get("available"),
        "held": figures.get("held"),
        "sold": figures.get("sold"),
        "line": figures.get("queued"),
        "decided": counts.get("decided"),
        "oversold": None if total is None or not figures else max(0, excess, -figures.get("available", 0)),
        "audit": audit.get("ok"),
        "broken": audit.get("broken", []),
    }
