"""The page of a web process is bounded by its live sales."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inventory.line.reading import LineFigures
from inventory.redis import client
from inventory.telemetry import page
from shop.gate import metrics
from shop.gate.metrics import LineCollector, RefusalCollector

# As long as a slug may be, and a SKU usually is.
SLUG_LETTERS, SKU_LETTERS = 60, 40


def sale(number: int) -> Any:
    name = f"{number:04}"
    return SimpleNamespace(
        card=SimpleNamespace(slug=name.ljust(SLUG_LETTERS, "s"), sku=name.ljust(SKU_LETTERS, "k")),
        figures=LineFigures(available=123_456, held=98_765, sold=1_234_567, queued=654_321, version=1, admitted=10**6),
        seen_at=0.0,
        state_at=lambda _moment: "open",
    )


@pytest.mark.parametrize(("live", "most_bytes"), [(50, 100_000), (1_000, 1_000_000)])
def test_the_page_is_bounded_by_live_sales(live: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REFUSED", dict.fromkeys(map(str, range(40)), 10**6))
    for name in client.script_names()[:12]:  # a web process runs about ten
        client.SCRIPT_SECONDS.observe(0.002, name)
    text = page.render("web", RefusalCollector(), LineCollector([sale(number) for number in range(live)]))
    assert len(text) <= most_bytes
    assert text.count(b"fairdrop_available{") == live
