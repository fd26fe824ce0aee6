"""`python -m loadtest.bench.age`: a shop without a past alongside one with 10,000 past sales.
Exit code 1 below a floor or when a measurement failed, 130 when interrupted. Never leaves a process or data behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadtest.bench.harness.command import CHECKOUT, Measured, own_stores, run_command, say, set_up_django
from workers.embedded.stores import start_both


def main() -> int:
    """Run the command."""
    return run_command(
        _measure, name="age", purpose="Measure a shop without a past alongside an old one; fail below a floor."
    )


def _measure(folder: Path, quick: bool) -> Measured:
    with own_stores(folder / "young") as young_servers, start_both(folder / "old") as old_servers:
        set_up_django()
        # Only now: these modules need the settings, which need the addresses.
        from loadtest.bench.age import report
        from loadtest.bench.age.plan import FULL, QUICK
        from loadtest.bench.age.processes import shop_of
        from loadtest.bench.age.run import OLD, YOUNG, measure_all
        from loadtest.bench.harness import machine
        from loadtest.bench.harness.servers import Workspace

        plan, hardware = QUICK if quick else FULL, machine.hardware()
        place = Workspace(checkout=CHECKOUT, environment=dict(os.environ), folder=folder)
        with (
            shop_of(YOUNG, young_servers, place=place) as young,
            shop_of(OLD, old_servers, place=place) as old,
        ):
            results = measure_all(plan, young, old, say=say)
        return report.report_of(results, plan=plan, hardware=hardware, quick=quick), {}


if __name__ == "__main__":
    sys.exit(main())
