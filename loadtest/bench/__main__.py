"""`python -m loadtest.bench [NAME]`: runs one benchmark; without a name, each in turn, and writes the table of all.
Goes on after one that failed. Exit code 1 when a floor was missed or a benchmark failed, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from loadtest.bench.harness.benchmark import say
from loadtest.bench.harness.command import CHECKOUT, INTERRUPTED_CODE, run_benchmark
from loadtest.bench.harness.report import missed
from loadtest.bench.summary import BENCHMARKS, page_of, read_page

# A benchmark cleans up after itself when it is interrupted.
END_SECONDS = 30.0


def main() -> int:
    """Run the command."""
    options = _options()
    if options.name is not None:
        return run_benchmark(options.name, quick=options.quick, out=options.out)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = () if options.only_table else BENCHMARKS
    try:
        codes = {name: _run(name, options) for name in chosen}
    except KeyboardInterrupt:
        print("\nInterrupted; the table was not written.", file=sys.stderr)
        return INTERRUPTED_CODE
    return _end(codes, out=options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench", description="Run a benchmark, or every one; fail when a floor is missed."
    )
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, help="the benchmark to run; without it, every one")
    parser.add_argument("--quick", action="store_true", help="short runs that show that everything works")
    parser.add_argument("--only-table", action="store_true", help="measure nothing: write the table of what is there")
    parser.add_argument("--out", type=Path, help="folder for the pages (docs/benchmarks; of one --quick: none)")
    options = parser.parse_args()
    if options.quick and options.out is None and options.name is None:
        parser.error("--quick needs --out: what it measures is too short to be quoted")
    if options.out is None and not options.quick:
        options.out = CHECKOUT / "docs" / "benchmarks"
    return options


def _run(name: str, options: argparse.Namespace) -> int:
    say(f"\n━━ {name}")
    began = time.monotonic()
    command = [sys.executable, "-m", "loadtest.bench", name, "--out", str(options.out)]
    child = subprocess.Popen([*command, "--quick"] if options.quick else command, cwd=CHECKOUT)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        # A Ctrl-C has reached it as well; a SIGTERM has not.
        child.send_signal(signal.SIGINT)
        try:
            child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
    say(f"━━ {name}: {'✓' if code == 0 else f'✗ exit code {code}'}   ({time.monotonic() - began:.0f} s)")
    if code == INTERRUPTED_CODE:
        raise KeyboardInterrupt
    return code


def _end(codes: dict[str, int], *, out: Path) -> int:
    """Write the table of the pages that are there, say what was missed, and return the exit code.

    codes: with which each benchmark that ran has ended.
    """
    pages = {name: page for name in BENCHMARKS if (page := read_page(out, name)) is not None}
    reasons = [
        f"{name}: {reason}" for name, page in pages.items() for reason in missed(page.figures, faults=page.faults)
    ]
    reasons += [f"{name} has no page" for name in BENCHMARKS if name not in pages]
    # Its page may be that of an earlier run.
    reasons += [f"{name} ended with exit code {code}" for name, code in codes.items() if code != 0]
    out.mkdir(parents=True, exist_ok=True)
    (out / "README.md").write_text(page_of(pages, reasons=reasons))
    say("\n".join(f"✗ {reason}" for reason in reasons) or "✓ Every floor of every benchmark holds.")
    say(f"Written to {out}: README.md")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
