"""`python -m loadtest.bench.compare`: sells the same goods in ten ways on stores of its own, and compares them.
Exit code 1 when a promise or a floor is broken, 130 when interrupted. Never leaves a process or data behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadtest.bench.harness.command import CHECKOUT, Measured, own_stores, run_command, say, set_up_django

PICTURE = "compare.svg"


def main() -> int:
    """Run the command."""
    return run_command(
        _measure, name="compare", purpose="Sell the same goods in ten ways; fail when a promise or a floor is broken."
    )


def _measure(folder: Path, quick: bool) -> Measured:
    with own_stores(folder) as servers:
        shop_environment = dict(os.environ)
        # This process counts in the rivals' tables, and makes them.
        os.environ["DJANGO_SETTINGS_MODULE"] = "loadtest.rivals.lean_settings"
        set_up_django()
        # Only now: these modules need the settings, which need the addresses.
        from loadtest.bench.compare import report as compare_report
        from loadtest.bench.compare.plan import FULL, QUICK
        from loadtest.bench.compare.run import measure_all
        from loadtest.bench.harness import machine
        from loadtest.bench.harness.servers import Workspace

        plan, hardware = QUICK if quick else FULL, machine.hardware()
        place = Workspace(checkout=CHECKOUT, environment=shop_environment, folder=folder)
        stores = [server.child for server in (servers.postgres, servers.valkey) if server.child is not None]
        results = measure_all(plan, place=place, stores=stores, say=say)
        report = compare_report.report_of(results, plan=plan, hardware=hardware, quick=quick, picture=PICTURE)
        return report, {PICTURE: compare_report.picture_of(results)}


if __name__ == "__main__":
    sys.exit(main())
