"""`python -m loadtest.bench`: runs every benchmark one after the other and writes the table of them all.
Goes on behind one that failed. Exit code 1 when a floor was missed or a benchmark failed, 130 when interrupted.
Each benchmark starts its own stores.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from loadtest.bench.harness.command import CHECKOUT, INTERRUPTED_CODE, say
from loadtest.bench.summary import BENCHMARKS, Page, missed, page_of, read_page

PACKAGE = "loadtest.bench"
# A benchmark cleans up behind itself when it is interrupted.
END_SECONDS = 30.0


def main() -> int:
    """Run the command."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = () if options.only_table else BENCHMARKS
    try:
        failed = [name for name in chosen if _is_there(name) and _run(name, options) != 0]
    except KeyboardInterrupt:
        print("\nInterrupted; the table was not written.", file=sys.stderr)
        return INTERRUPTED_CODE
    pages = [page for name in BENCHMARKS if (page := read_page(options.out, name)) is not None]
    (options.out / "README.md").write_text(page_of(pages))
    _say_outcome(pages, failed=failed, out=options.out)
    return 1 if failed or any(missed(page) for page in pages) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run every benchmark; fail when a floor is missed.")
    parser.add_argument("--quick", action="store_true", help="short runs that show that everything works")
    parser.add_argument("--only-table", action="store_true", help="measure nothing: write the table of what is there")
    parser.add_argument("--out", type=Path, help="folder for all pages (docs/benchmarks; needed with --quick)")
    options = parser.parse_args()
    if options.quick and options.out is None:
        parser.error("--quick needs --out: what it measures is too short to be quoted")
    options.out = options.out or CHECKOUT / "docs" / "benchmarks"
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def _is_there(name: str) -> bool:
    return find_spec(f"{PACKAGE}.{name}") is not None


def _run(name: str, options: argparse.Namespace) -> int:
    say(f"\n━━ {name}")
    began = time.monotonic()
    command = [sys.executable, "-m", f"{PACKAGE}.{name}", "--out", str(options.out)]
    child = subprocess.Popen([*command, "--quick"] if options.quick else command, cwd=CHECKOUT)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        # A Ctrl-C has reached it as well; a SIGTERM has not.
        child.send_signal(signal.SIGINT)
        child.wait(END_SECONDS)
        raise
    say(f"━━ {name}: {'✓' if code == 0 else f'✗ exit code {code}'}   ({time.monotonic() - began:.0f} s)")
    if code == INTERRUPTED_CODE:
        raise KeyboardInterrupt
    return code


def _say_outcome(pages: list[Page], *, failed: list[str], out: Path) -> None:
    for page in pages:
        for reason in missed(page):
            say(f"✗ {page.name}: {reason}")
    for name in failed:
        say(f"✗ {name} ended with an error")
    if not failed and not any(missed(page) for page in pages):
        say("✓ Every floor of every benchmark holds.")
    say(f"Written to {out}: README.md")


if __name__ == "__main__":
    sys.exit(main())
