"""What every benchmark's command has in common: its options, its folder, its signals, its table and its files.
Never leaves data behind, and writes its page only when the run came to an end.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.bench.harness.report import Report, as_json, markdown, sentence, table
from loadtest.bench.load.wire import LoadFailed
from workers.embedded.child_process import adopt_orphans
from workers.embedded.server import ServerFailed
from workers.embedded.stores import Servers, start_both

CHECKOUT = Path(__file__).resolve().parents[3]
INTERRUPTED_CODE = 130
# A report, and its pictures by file name.
Measured = tuple[Report, dict[str, str]]


def run_command(measure: Callable[[Path, bool], Measured], *, name: str, purpose: str) -> int:
    """Measure with (a folder for data, quick?), print and write `name`.md and its twins; return the exit code."""
    options = _options(name, purpose=purpose)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    adopt_orphans()
    began = time.monotonic()
    try:
        with _folder() as folder:
            measured = measure(folder, options.quick)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing was written.", file=sys.stderr)
        return INTERRUPTED_CODE
    except (LoadFailed, ServerFailed) as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1
    report, pictures = measured
    say(f"\n{table(report.figures)}\n\n{sentence(report)}   ({time.monotonic() - began:.0f} s)")
    out = options.out or (None if options.quick else CHECKOUT / "docs" / "benchmarks")
    if out is not None:
        _write(report, pictures, name=name, out=out)
    return 0 if report.ok else 1


@contextmanager
def own_stores(folder: Path) -> Iterator[Servers]:
    """Run both stores for the length of a `with` block, with their data in `folder`; this process works on them."""
    # Addresses in the environment are left out: figures of servers that others use would mean nothing.
    with start_both(folder) as servers:
        os.environ |= servers.environment | environment_of(servers.environment["REDIS_URL"])
        yield servers


def environment_of(redis_url: str) -> dict[str, str]:
    """Return what a run's processes share besides the stores: nothing of a .env for production."""
    return {
        "CACHE_URL": redis_url,
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "FAIRDROP_ENV": "development",
        "FAIRDROP_BEHIND_TLS": "0",
        "SECRET_KEY": secrets.token_urlsafe(64),
        "FAIRDROP_TOKEN_KEYS": secrets.token_urlsafe(32),
    }


def set_up_django() -> None:
    """Set Django up for the addresses in the environment, and make the tables."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def say(text: str) -> None:
    """Print `text` at once."""
    print(text, flush=True)


def _options(name: str, *, purpose: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--quick", action="store_true", help="a short run that shows that everything works")
    parser.add_argument("--out", type=Path, help=f"folder for {name}.md and its twins (docs/benchmarks; --quick: none)")
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


def _write(report: Report, pictures: dict[str, str], *, name: str, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.md": markdown(report), f"{name}.json": as_json(report), **pictures}
    for file_name, text in files.items():
        (out / file_name).write_text(text)
    say(f"Written to {out}: {', '.join(files)}")
