"""`python -m loadtest.bench.gate`: starts its own stores, measures, prints a table, writes the page and the JSON.
Exit code 1 below a floor or when a measurement failed, 130 when interrupted. Never leaves a process or data behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadtest.bench.harness.command import CHECKOUT, Measured, own_stores, run_command, say, set_up_django


def main() -> int:
    """Run the command."""
    return run_command(
        _measure, name="gate", purpose="Measure the gate, settlement and the whole road; fail below a floor."
    )


def _measure(folder: Path, quick: bool) -> Measured:
    with own_stores(folder):
        set_up_django()
        # Only now: these modules need the settings, which need the addresses.
        from loadtest.bench.gate.plan import FULL, QUICK
        from loadtest.bench.gate.run import run_all
        from loadtest.bench.harness.servers import Workspace

        place = Workspace(checkout=CHECKOUT, environment=dict(os.environ), folder=folder)
        return run_all(QUICK if quick else FULL, place=place, quick=quick, say=say), {}


if __name__ == "__main__":
    sys.exit(main())
