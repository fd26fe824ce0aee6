"""`python -m loadtest.bench.locks_queue`: measures locks and queues alongside each other on Valkeys of its own.
Exit code 1 below a floor or when a measurement failed, 130 when interrupted. Never leaves a process or data behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadtest.bench.harness.command import CHECKOUT, Measured, environment_of, run_command, say
from workers.embedded.stores import start_valkey

PACKAGES = ("redis", "hiredis", "python-redis-lock", "pottery", "rq", "huey", "dramatiq", "saq")
PICTURE = "locks_queue.svg"


def main() -> int:
    """Run the command."""
    return run_command(
        _measure,
        name="locks_queue",
        purpose="Measure the lock and the queue alongside other libraries'; fail below a floor.",
    )


def _measure(folder: Path, quick: bool) -> Measured:
    with (
        start_valkey(folder / "always") as strict,
        start_valkey(folder / "everysec", append_fsync="everysec") as relaxed,
    ):
        os.environ |= {"REDIS_URL": strict.url} | environment_of(strict.url)
        # Only now: these modules need the settings, which need the address.
        from inventory.redis import connect
        from loadtest.bench.harness import machine
        from loadtest.bench.harness.method import filled
        from loadtest.bench.harness.report import Report
        from loadtest.bench.locks_queue import report
        from loadtest.bench.locks_queue.bounds import overlap_faults
        from loadtest.bench.locks_queue.plan import FULL, METHOD, QUICK
        from loadtest.bench.locks_queue.run import measure_all

        plan, hardware = QUICK if quick else FULL, machine.hardware()
        results = measure_all(plan, strict=strict, relaxed=relaxed, say=say)
        whole = Report(
            title="The lock and the queue: measured alongside others",
            command="make bench-locks",
            date=machine.now(),
            revision=machine.revision(CHECKOUT),
            quick=quick,
            figures=report.figures_of(results),
            facts={
                "Hardware": hardware,
                "Versions": machine.versions(connect(), packages=PACKAGES),
                "Persistence": {"valkey": machine.append_mode(connect()), "valkey everysec": "appendfsync everysec"},
            },
            method=filled(METHOD, plan),
            samples=report.samples_of(results),
            faults=overlap_faults(results.crowds),
            comparisons=report.comparisons_of(results),
            picture=(PICTURE, "Bars of every lock and queue alongside ours"),
        )
        return whole, {PICTURE: report.picture_of(results)}


if __name__ == "__main__":
    sys.exit(main())
