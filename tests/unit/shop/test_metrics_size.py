"""The pages of a web process and of a reconciler are bounded by live sales, with all that each of them shows, and what
is the same for all processes is not on that of a web process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from inventory.line.reading import LineFigures
from inventory.redis import scripts
from inventory.redis.memory import WATCH, Memory
from inventory.telemetry import page
from shop.gate import metrics
from workers.reconciler.gauges import Gauges, Seen

# As long as a slug may be, and a SKU usually is.
SLUG_LETTERS, SKU_LETTERS = 60, 40
# What a page may cost over the bare writing of its lines; the library takes several times that.
MAX_RATIO = 4
TURNS = 10


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
    for name in list(scripts.script_paths())[:12]:  # a web process runs about ten
        scripts.SCRIPT_SECONDS.observe(0.002, name)
    board: Any = SimpleNamespace(entries=lambda: [sale(number) for number in range(live)])
    text = metrics.render(board, cast(Any, range(10_000)))
    assert len(text) <= max_bytes
    assert text.count(b"fairdrop_figures_age_seconds{") == live
    assert names_on(metrics.families(board, cast(Any, ()))) <= names_in(text.decode())


def names_on(families: Iterable[str]) -> set[str]:
    """Return what these show."""
    return names_in("".join(families))


def names_in(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (fairdrop_\w+)", text, re.MULTILINE))


def test_a_web_process_shows_only_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WATCH, "seen", {"": Memory(1, 2)})
    board: Any = SimpleNamespace(entries=lambda: [sale(0)])
    web = names_on(metrics.families(board, cast(Any, ())))
    own = {"fairdrop_refusals_total", "fairdrop_figures_age_seconds", "fairdrop_streams"}
    assert web == own | {"fairdrop_clock_ahead_seconds"}
    assert not web & names_on(Gauges().collect())


def test_a_sale_that_is_over_or_was_never_read_has_no_age() -> None:
    over, unread = sale(1), sale(2)
    over.state_at, unread.figures = (lambda _moment: "closed"), None
    text = metrics.figures_age([sale(0), over, unread])
    assert re.findall(r'sale="(\w+)"', text) == [sale(0).card.slug]


@pytest.fixture
def gauges_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Gauges]:
    """Return a function that makes the gauges of so many live sales, on a Cluster of six."""
    nodes = {f"redis-{number}.example:6379": Memory(10**10, 10**10) for number in range(6)}
    monkeypatch.setattr(WATCH, "seen", nodes)
    units = {"available": 123_456, "held": 98_765, "sold": 1_234_567}
    seen = Seen(units=units, undecided=654_321, oldest_seconds=12.345678, idle_seconds=12.345678, dead_letters=12)

    def made(live: int) -> Gauges:
        gauges = Gauges()
        monkeypatch.setattr(gauges, "_skus", {f"{number:04}".ljust(SKU_LETTERS, "k"): seen for number in range(live)})
        return gauges

    return made


@pytest.mark.parametrize(("live", "max_bytes"), [(50, 100_000), (1_000, 1_000_000)])
def test_the_page_of_a_reconciler_too(live: int, max_bytes: int, gauges_of: Callable[[int], Gauges]) -> None:
    text = page.render("reconciler", gauges_of(live).collect())
    assert len(text) <= max_bytes
    assert text.count(b"fairdrop_line_undecided{") == live
    assert text.count(b"fairdrop_redis_used_bytes{") == 6


def cpu_ratio(one: Callable[[], object], other: Callable[[], object]) -> float:
    """Return what one call costs in CPU time over what the other one does: the least of several turns of each."""
    costs = [(cpu_seconds(one), cpu_seconds(other)) for _ in range(TURNS)]
    least, least_other = map(min, zip(*costs, strict=True))
    return least / least_other


def cpu_seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


def test_a_page_costs_little_more_than_to_write_its_lines(gauges_of: Callable[[int], Gauges]) -> None:
    """The control is the same page as the library writes it; so objects for each sample would be seen."""
    gauges = gauges_of(1_000)
    families = list(text_string_to_metric_families(page.render("reconciler", gauges.collect()).decode()))
    registry = cast(CollectorRegistry, SimpleNamespace(collect=lambda: families))
    shown = [(sample.name, sample.labels.get("sku", ""), sample.value) for each in families for sample in each.samples]

    def write_lines() -> str:
        return "".join([f'{name}{{sku="{which}"}} {value}\n' for name, which, value in shown if which])

    assert cpu_ratio(lambda: page.render("reconciler", gauges.collect()), write_lines) <= MAX_RATIO
    assert cpu_ratio(lambda: generate_latest(registry), write_lines) > MAX_RATIO
