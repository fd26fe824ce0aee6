"""`python -m loadtest.benchmarks.gate`: starts its own stores, measures, prints a table, writes the page and the JSON.
Exit code 1 below a floor or when a measurement failed, 130 when interrupted. Never leaves a process or data behind.
Called by `make bench-gate`.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.benchmarks.report import Report, as_json, markdown, sentence, table
from workers.child_process import adopt_orphans
from workers.embedded import start_both

CHECKOUT = Path(__file__).resolve().parent.parent.parent
INTERRUPTED_CODE = 130


def main() -> int:
    """Run the command."""
    options = _options()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    adopt_orphans()
    try:
        with _folder() as folder:
            return _measure(options, folder=folder)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing was written.", file=sys.stderr)
        return INTERRUPTED_CODE


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the gate, settlement and the whole road; fail below a floor.")
    parser.add_argument("--quick", action="store_true", help="a short run that shows that everything works")
    parser.add_argument("--out", type=Path, help="folder for gate.md and gate.json (docs/benchmarks; --quick: none)")
    return parser.parse_args()


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder for the run's data and remove it afterwards. Not the system's own: that may be memory, not disk."""
    parent = Path(os.environ.get("FAIRDROP_STATE_DIR") or CHECKOUT / ".fairdrop")
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="benchmark-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(options: argparse.Namespace, *, folder: Path) -> int:
    began = time.monotonic()
    # Addresses in the environment are left out: figures of servers that others use would mean nothing.
    with start_both(folder, environment={}) as servers:
        os.environ |= servers.environment | _environment(servers.environment["REDIS_URL"])
        _set_up_django()
        # Only now: these modules need the settings, which need the addresses.
        from loadtest.benchmarks.loader import LoadFailed
        from loadtest.benchmarks.plans import FULL, QUICK
        from loadtest.benchmarks.run import run_all
        from loadtest.benchmarks.sides import Place
        from workers.server import ServerFailed

        place = Place(checkout=CHECKOUT, environment=dict(os.environ), folder=folder)
        try:
            report = run_all(QUICK if options.quick else FULL, place=place, quick=options.quick, say=_say)
        except (LoadFailed, ServerFailed) as error:
            print(f"✗ {error}", file=sys.stderr)
            return 1
    return _finish(
        report, out=options.out or (None if options.quick else CHECKOUT / "docs" / "benchmarks"), began=began
    )


def _environment(redis_url: str) -> dict[str, str]:
    """Return what a run's processes share besides the stores: nothing of a .env for production."""
    return {
        "CACHE_URL": redis_url,
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "FAIRDROP_ENV": "development",
        "FAIRDROP_BEHIND_TLS": "0",
        "SECRET_KEY": secrets.token_urlsafe(64),
        "FAIRDROP_TOKEN_KEYS": secrets.token_urlsafe(32),
    }


def _set_up_django() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def _say(text: str) -> None:
    print(text, flush=True)


def _finish(report: Report, *, out: Path | None, began: float) -> int:
    """Print the table, write the files, return the exit code."""
    _say(f"\n{table(report.figures)}\n\n{sentence(report)}   ({time.monotonic() - began:.0f} s)")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "gate.md").write_text(markdown(report))
        (out / "gate.json").write_text(as_json(report))
        _say(f"Written: {out / 'gate.md'} and gate.json")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
