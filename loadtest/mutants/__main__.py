"""`python -m loadtest.mutants`: switches each guard off in a flood of its own, then floods the shop as it is N times.
Exit code 1 if a mutant was not seen or the shop as it is was not green, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtest.bench.harness import machine
from loadtest.bench.harness.command import CHECKOUT, INTERRUPTED_CODE, own_folder, write_page
from loadtest.bench.harness.report import sentence, table
from loadtest.mutants.guards import GUARDS
from loadtest.mutants.one_run import RESULT_FILE
from loadtest.mutants.results import AS_IT_IS, Outcome, outcome_of, report_of
from workers.embedded.child_process import ChildProcess, adopt_orphans

GREEN_RUNS = 20
RUN_SECONDS = 600.0
# A run stops its own processes and stores one after the other.
STOP_SECONDS = 30.0


def main() -> int:
    """Run the command."""
    options = _options()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    adopt_orphans()
    hardware = machine.hardware()
    try:
        with own_folder("mutants-", keep=options.keep) as folder:
            outcomes, facts = _run_all(options, folder=folder)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing was written.", file=sys.stderr)
        return INTERRUPTED_CODE
    report = report_of(
        outcomes,
        wanted=options.mutants,
        greens=options.green,
        date=machine.now(),
        revision=machine.revision(CHECKOUT),
        facts={"Hardware": hardware, **facts},
    )
    print(f"\n{table(report.figures)}\n\n{sentence(report)}", flush=True)
    if options.out is not None:
        write_page(report, name="mutants", out=options.out)
    return 0 if report.ok else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.mutants", description="See that the verdict sees.")
    parser.add_argument("--green", type=int, default=GREEN_RUNS, help="how often the shop as it is must be green")
    parser.add_argument("--mutants", nargs="*", choices=list(GUARDS), default=list(GUARDS))
    parser.add_argument("--out", type=Path, help="folder for mutants.md and mutants.json; none: nothing is written")
    parser.add_argument("--keep", action="store_true", help="keep records and logs of every run")
    return parser.parse_args()


def _run_all(options: argparse.Namespace, *, folder: Path) -> tuple[list[Outcome], dict[str, Any]]:
    """Run every mutant, then the shop as it is; each run has another crowd. Say what came of each at once."""
    outcomes: list[Outcome] = []
    facts: dict[str, Any] = {}
    for number, mutant in enumerate([*options.mutants, *[""] * options.green], 1):
        home = folder / f"{number:02}-{mutant or 'as-it-is'}"
        result = _run_one(home, mutant=mutant, seed=number)
        outcome = (
            outcome_of(result) if "green" in result else Outcome(mutant=mutant, green=False, fault=result["fault"])
        )
        facts = result.get("facts", facts)
        outcomes.append(outcome)
        print(f"{'✓' if outcome.as_wanted else '✗'} {outcome.sentence}   ({outcome.seconds:.0f} s)", flush=True)
        if not options.keep and outcome.as_wanted:
            shutil.rmtree(home, ignore_errors=True)
    return outcomes, facts


def _run_one(home: Path, *, mutant: str, seed: int) -> dict[str, Any]:
    """Run one flood in a process of its own; return its result, or why there is none."""
    home.mkdir()
    words: Sequence[str] = ["--mutant", mutant, "--folder", str(home), "--seed", str(seed)]
    run = ChildProcess(
        name=mutant or AS_IT_IS,
        arguments=[sys.executable, "-m", "loadtest.mutants.one_run", *words],
        environment=_environment(),
        folder=CHECKOUT,
        log_path=home / "run.log",
        stop_timeout_seconds=STOP_SECONDS,
    ).start()
    try:
        ended = run.wait(timeout_seconds=RUN_SECONDS)
    finally:
        run.stop()
    if not ended:
        return {"fault": f"the run did not end within {RUN_SECONDS:.0f} s"}
    if not (home / RESULT_FILE).exists():
        said = (home / "run.log").read_text(errors="replace").strip().splitlines()
        return {"fault": f"no result: {said[-1] if said else 'the run said nothing'}"}
    result: dict[str, Any] = json.loads((home / RESULT_FILE).read_text())
    return result


def _environment() -> dict[str, str]:
    """Return ours without addresses: figures of servers that others use would mean nothing."""
    return {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL", "CACHE_URL")}


if __name__ == "__main__":
    sys.exit(main())
