"""`python -m loadtest.benchmarks.settle`: measures settlement, expiry, payment and the audit on stores of its own.
Exit code 1 below a floor or when a measurement failed, 130 when interrupted. Never leaves a process or data behind.
Called by `make bench-settle`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadtest.benchmarks.command import CHECKOUT, Measured, environment_of, run_command, say, set_up_django
from workers.embedded import start_both

PICTURE = "settle.svg"


def main() -> int:
    """Run the command."""
    return run_command(
        _measure, name="settle", purpose="Measure settlement, expiry, payment and the audit; fail below a floor."
    )


def _measure(folder: Path, quick: bool) -> Measured:
    # Addresses in the environment are left out: figures of servers that others use would mean nothing.
    with start_both(folder, environment={}) as servers:
        os.environ |= servers.environment | environment_of(servers.environment["REDIS_URL"])
        set_up_django()
        # Only now: these modules need the settings, which need the addresses.
        from loadtest.benchmarks import settle_report
        from loadtest.benchmarks.settle_plans import FULL, QUICK
        from loadtest.benchmarks.settle_run import measure_all
        from loadtest.benchmarks.sides import Place

        lengths, hardware = QUICK if quick else FULL, settle_report.hardware()
        place = Place(checkout=CHECKOUT, environment=dict(os.environ), folder=folder)
        results = measure_all(lengths, place=place, say=say)
        report = settle_report.report_of(results, lengths=lengths, hardware=hardware, quick=quick, picture=PICTURE)
        return report, {PICTURE: settle_report.picture_of(results)}


if __name__ == "__main__":
    sys.exit(main())
