"""`python -m loadtest.bench.shop`: measures the whole shop under load, spike and overload on stores of its own.
Exit code 1 below a floor or when a measurement failed, 130 when interrupted. Never leaves a process or data behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadtest.bench.harness.command import CHECKOUT, Measured, own_stores, run_command, say, set_up_django

PICTURE = "shop.svg"


def main() -> int:
    """Run the command."""
    return run_command(
        _measure, name="shop", purpose="Measure the whole shop under load, spike and overload; fail below a floor."
    )


def _measure(folder: Path, quick: bool) -> Measured:
    with own_stores(folder) as servers:
        set_up_django()
        # Only now: these modules need the settings, which need the addresses.
        from loadtest.bench.harness import machine
        from loadtest.bench.harness.servers import Workspace
        from loadtest.bench.load.arrivals import prepare
        from loadtest.bench.shop import report as shop_report
        from loadtest.bench.shop.plan import FULL, QUICK
        from loadtest.bench.shop.run import measure_all

        prepare(side="the servers and their load")
        plan, hardware = QUICK if quick else FULL, machine.hardware()
        place = Workspace(checkout=CHECKOUT, environment=dict(os.environ), folder=folder)
        results = measure_all(plan, place=place, servers=servers, say=say)
        report = shop_report.report_of(results, plan=plan, hardware=hardware, quick=quick, picture=PICTURE)
        return report, {PICTURE: shop_report.picture_of(results)}


if __name__ == "__main__":
    sys.exit(main())
