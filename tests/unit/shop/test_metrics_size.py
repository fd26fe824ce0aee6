"""The pages of a web process and of a reconciler are bounded by live sales, with all that each of them shows, and what
is the same for all processes is not on that of a web process.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.core import Metric

from inventory.line.reading import LineFigures
from inventory.redis import client
from inventory.redis.memory import WATCH, Memory
from inventory.telemetry import page
from shop.gate import metrics
from workers.reconciler.gauges import Gauges, Seen

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


@pytest.mark.parametrize(("live", "max_bytes"), [(50, 100_000), (1_000, 1_000_000)])
def test_the_page_is_bounded_by_live_sales(live: int, max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REFUSED", dict.fromkeys(map(str, range(40)), 10**6))
    for name in client.script_names()[:12]:  # a web process runs about ten
        client.SCRIPT_SECONDS.observe(0.002, name)
    board: Any = SimpleNamespace(entries=lambda: [sale(number) for number in range(live)])
    text = metrics.render(board, cast(Any, SimpleNamespace(count=10_000)))
    assert len(text) <= max_bytes
    assert text.count(b"fairdrop_figures_age_seconds{") == live
    shown = {name.decode() for name in re.findall(rb"^# TYPE (fairdrop_\w+)", text, re.MULTILINE)}
    assert {page_name(family) for family in of_web(board)} <= shown


def of_web(board: Any) -> list[Metric]:
    """Return what only a web process shows."""
    collectors = metrics.collectors(board, cast(Any, SimpleNamespace(count=0)))
    return [family for collector in collectors for family in collector.collect()]


def test_a_web_process_shows_only_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WATCH, "seen", {"": Memory(1, 2)})
    web = {page_name(family) for family in of_web(SimpleNamespace(entries=lambda: [sale(0)]))}
    own = {"fairdrop_refusals_total", "fairdrop_figures_age_seconds", "fairdrop_streams"}
    assert web == own | {"fairdrop_clock_ahead_seconds"}
    assert not web & {page_name(family) for family in Gauges().collect()}


def test_a_sale_that_is_over_or_was_never_read_has_no_age() -> None:
    over, unread = sale(1), sale(2)
    over.state_at, unread.figures = (lambda _moment: "closed"), None
    (ages,) = metrics.SaleCollector([sale(0), over, unread]).collect()
    assert [sample.labels["sale"] for sample in ages.samples] == [sale(0).card.slug]


@pytest.mark.parametrize(("live", "max_bytes"), [(50, 100_000), (1_000, 1_000_000)])
def test_the_page_of_a_reconciler_too(live: int, max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {f"redis-{number}.example:6379": Memory(10**10, 10**10) for number in range(6)}
    monkeypatch.setattr(WATCH, "seen", nodes)
    units = {"available": 123_456, "held": 98_765, "sold": 1_234_567}
    seen = Seen(units=units, undecided=654_321, oldest_seconds=12.345678, idle_seconds=12.345678, dead_letters=12)
    gauges = Gauges()
    monkeypatch.setattr(gauges, "_skus", {f"{number:04}".ljust(SKU_LETTERS, "k"): seen for number in range(live)})
    text = page.render("reconciler", gauges)
    assert len(text) <= max_bytes
    assert text.count(b"fairdrop_line_undecided{") == live
    assert text.count(b"fairdrop_redis_used_bytes{") == len(nodes)


def page_name(family: Metric) -> str:
    """Return the name of a family as the page has it."""
    return f"{family.name}_total" if family.type == "counter" else family.name
