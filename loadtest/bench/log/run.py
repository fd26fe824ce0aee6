"""Measures what readers of a long public log wait for: checkpoint, proof, verify_sale.py, the page's first result;
and what logs cost the whole road. Never leaves a slow call out, and fails when what was read breaks a rule.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, say
from loadtest.bench.harness.fixtures import make_fixture
from loadtest.bench.harness.servers import GATE, kept_connection, read_page, serving
from loadtest.bench.load.loop import HOST, LoadFailed
from loadtest.bench.log.plan import FULL, METHOD, QUICK, Plan
from loadtest.bench.log.report import figures_of, road_figures
from loadtest.bench.log.road import measure_road
from loadtest.bench.log.written import write_log, write_orders
from loadtest.verify import verify_sale

SLUG = "log"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_SECONDS = 900


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Write a log, serve it and read it. Raises LoadFailed, ServerFailed."""
    plan, fixture = run.plan, make_fixture(SLUG)
    say(f"A log of {plan.leaves:,} leaves")
    places = write_log(fixture, leaves=plan.leaves)
    orders = write_orders(fixture, ordinals=range(1, places, max(1, places // plan.asked)))
    with serving("web", GATE, place=run.place, slug=SLUG) as web:
        checkpoint = (f"/api/v1/sales/{SLUG}/log/checkpoint", "")
        checkpoints = waits_ms(web.port, [checkpoint] * plan.calls)
        proofs = [(f"/api/v1/requests/{request}/proof", token) for request, token in orders]
        each = waits_ms(web.port, (proofs * (plan.calls // len(proofs) + 1))[: plan.calls])
        address = f"http://{HOST}:{web.port}/sales/{SLUG}/"
        verify_seconds = seconds_to_verify(address)
        say(f"verify_sale.py took {verify_seconds:.1f} s")
        first_seconds, page_seconds = seconds_on_page(f"{address}verify/")
    figures = figures_of(
        checkpoints=checkpoints,
        proofs=each,
        verify_seconds=verify_seconds,
        first_seconds=first_seconds,
        page_seconds=page_seconds,
        leaves=plan.leaves,
    )
    turns, paced = measure_road(run)
    figures += road_figures(turns, paced, pace=plan.paced_per_second)
    faults = [fault for turn in (*turns, paced) for fault in turn.faults]
    return Findings(figures=figures, samples=[asdict(turn) for turn in turns], faults=faults)


def waits_ms(port: int, calls: list[tuple[str, str]]) -> list[float]:
    """Make calls, a path and a token each, one after the other; return how long each took. Raises LoadFailed."""
    with kept_connection(port) as connection:
        return [
            read_page(connection, path, headers={"Authorization": f"Bearer {token}"} if token else {})[1]
            for path, token in calls
        ]


def seconds_to_verify(address: str) -> float:
    """Run the stranger's script over a log. Raises LoadFailed when it finds a fault."""
    began = time.monotonic()
    command = [sys.executable, str(Path(verify_sale.__file__)), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"verify_sale.py: {done.stdout}{done.stderr}")
    return time.monotonic() - began


def seconds_on_page(address: str) -> tuple[float, float]:
    """Open the page of a log; return when it showed its first result and its verdict, NaN without a browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return float("nan"), float("nan")
    from playwright.sync_api import sync_playwright  # of the tests; the other benchmarks do without

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page()
        began = time.monotonic()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("[data-rule=signed].good", timeout=PATIENCE_SECONDS * 1000)
        first = time.monotonic() - began
        verdict = page.wait_for_selector("[data-verdict].good, [data-verdict].bad", timeout=PATIENCE_SECONDS * 1000)
        whole, said = time.monotonic() - began, (verdict.get_attribute("class") if verdict else "") or ""
        opened.close()
    say(f"the page: first result after {first:.2f} s, verdict after {whole:.1f} s")
    if "good" not in said.split():
        raise LoadFailed("the page found a fault")
    return first, whole


BENCHMARK = Benchmark(
    title="A public log of a million leaves: measured",
    packages=("django", "cryptography", "granian"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
)
