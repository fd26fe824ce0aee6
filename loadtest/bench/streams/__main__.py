"""`python -m loadtest.bench.streams`: purchases with and without 2,000 live streams, and the sale page's rate.
Exit code 1 below a floor or when a measurement failed, 130 when interrupted. Never leaves a process or data behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadtest.bench.harness.command import CHECKOUT, Measured, own_stores, run_command, say, set_up_django

PICTURE = "streams.svg"


def main() -> int:
    """Run the command."""
    return run_command(
        _measure,
        name="streams",
        purpose="Measure live streams alongside purchases, and the sale page; fail below a floor.",
    )


def _measure(folder: Path, quick: bool) -> Measured:
    with own_stores(folder):
        set_up_django()
        # Only now: these modules need the settings, which need the addresses.
        from loadtest.bench.harness import machine
        from loadtest.bench.harness.servers import Workspace
        from loadtest.bench.streams import report as streams_report
        from loadtest.bench.streams.run import FULL, QUICK, measure_all

        plan, hardware = QUICK if quick else FULL, machine.hardware()
        place = Workspace(checkout=CHECKOUT, environment=dict(os.environ), folder=folder)
        results = measure_all(plan, place=place, say=say)
        report = streams_report.report_of(results, plan=plan, hardware=hardware, quick=quick, picture=PICTURE)
        return report, {PICTURE: streams_report.picture_of(results)}


if __name__ == "__main__":
    sys.exit(main())
