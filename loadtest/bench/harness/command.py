"""Runs one benchmark: its stores, its folder, its signals, its table and its files.
Never leaves data behind, and writes a page only when the run came to an end.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Stores, say
from loadtest.bench.harness.core_speed import CORE_SPEED
from loadtest.bench.harness.report import Report, as_json, filled, markdown, sentence, table
from loadtest.bench.load.loop import LoadFailed
from loadtest.record.files import own_mark, remove_left_behind
from workers.embedded.child_process import adopt_orphans
from workers.embedded.places import PASS
from workers.embedded.server import ServerFailed
from workers.embedded.stores import start_both, start_valkey

CHECKOUT = Path(__file__).resolve().parents[3]
INTERRUPTED_CODE = 130


def run_benchmark(name: str, *, quick: bool, out: Path | None) -> int:
    """Measure, print the table and write `name`.md and its twins into `out`; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    adopt_orphans()
    began = time.monotonic()
    try:
        with own_folder() as folder, STORES.get(name, one_shop)(folder) as stores:
            report, picture = _measure(name, quick=quick, folder=folder, stores=stores)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing was written.", file=sys.stderr)
        return INTERRUPTED_CODE
    except (LoadFailed, ServerFailed) as error:
        print(f"✗ {error}{f' ({error.__cause__!r})' if error.__cause__ else ''}", file=sys.stderr)
        return 1
    say(f"\n{table(report.figures)}\n\n{sentence(report)}   ({time.monotonic() - began:.0f} s)")
    if out is not None:
        write_page(report, name=name, out=out, picture=picture)
    return 0 if report.ok else 1


def _measure(name: str, *, quick: bool, folder: Path, stores: Stores) -> tuple[Report, str]:
    # Only now: these modules need the settings, which need the addresses.
    from loadtest.bench.harness import machine
    from loadtest.bench.harness.servers import Workspace

    benchmark: Benchmark[Any] = import_module(f"loadtest.bench.{name}.run").BENCHMARK
    if not quick:
        CORE_SPEED.start()
    plan, hardware = benchmark.quick if quick else benchmark.full, machine.hardware()
    place = Workspace(checkout=CHECKOUT, environment=stores.environment, folder=folder)
    found = benchmark.measure(BenchmarkRun(plan=plan, quick=quick, stores=stores, place=place, hardware=hardware))
    facts = machine.facts(packages=benchmark.packages, database=bool(stores.pairs))
    report = Report(
        title=benchmark.title,
        command=benchmark.command or f"make bench-{name}",
        date=machine.now(),
        revision=machine.revision(CHECKOUT),
        quick=quick,
        figures=found.figures,
        facts={"Hardware": hardware | CORE_SPEED.facts(), **facts, **found.facts},
        method=filled(benchmark.method, plan),
        samples=found.samples,
        faults=found.faults,
        comparisons=found.comparisons,
        picture=(f"{name}.svg", benchmark.picture) if found.picture else None,
    )
    return report, found.picture


@contextmanager
def one_shop(folder: Path, *, settings: str = "shop.settings", is_patient: bool = True) -> Iterator[Stores]:
    """Run both stores for the length of a `with` block, with their data in `folder`; this process works on them.

    settings: the module of this process alone, which also waits longer for Redis if it is_patient; what is run has the
    shop's.
    """
    # Addresses in the environment are left out: figures of servers that others use would mean nothing.
    with start_both(folder) as servers:
        os.environ |= servers.environment | _environment(servers.environment["REDIS_URL"])
        environment = dict(os.environ)
        # A store that a measurement fills may be slow to answer the one who measures.
        patience = {"FAIRDROP_REDIS_TIMEOUT_SECONDS": "5"} if is_patient else {}
        os.environ |= {"DJANGO_SETTINGS_MODULE": settings, **patience}
        set_up_django()
        yield Stores(pairs=[servers], environment=environment)


@contextmanager
def _two_shops(folder: Path) -> Iterator[Stores]:
    with one_shop(folder / "young") as young, start_both(folder / "old") as old:
        yield Stores(pairs=[*young.pairs, old], environment=young.environment)


@contextmanager
def _two_valkeys(folder: Path) -> Iterator[Stores]:
    """Run a Valkey that has every write on disk before its answer, and one that has not."""
    with start_valkey(folder / "always") as strict, start_valkey(folder / "everysec", append_fsync="everysec") as easy:
        os.environ |= {"REDIS_URL": strict.url} | _environment(strict.url)
        yield Stores(valkeys=[strict, easy], environment=dict(os.environ))


# Of those that do not run on the stores of one shop.
STORES: dict[str, Callable[[Path], AbstractContextManager[Stores]]] = {
    "age": _two_shops,
    # It counts in the tables of the rivals, and makes them.
    "compare": partial(one_shop, settings="loadtest.rivals.lean_settings"),
    "locks_queue": _two_valkeys,
}


def _environment(redis_url: str) -> dict[str, str]:
    """Return what a run's processes share besides the stores: nothing of a .env for production."""
    return {
        "CACHE_URL": redis_url,
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "FAIRDROP_ENV": "development",
        "FAIRDROP_BEHIND_TLS": "0",
        # The loaders are the proxy: they say from which address each buyer comes.
        "FAIRDROP_TRUSTED_PROXIES": "1",
        "SECRET_KEY": secrets.token_urlsafe(64),
        "FAIRDROP_TOKEN_KEYS": secrets.token_urlsafe(32),
    }


def set_up_django() -> None:
    """Set Django up for the addresses in the environment, and make the tables."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


@contextmanager
def own_folder(prefix: str = "benchmark-", *, keep: bool = False) -> Iterator[Path]:
    """Make a folder for the run's data and remove it afterwards. Not the system's own: that may be memory, not disk.

    Those that runs of this kind left behind, because they were killed, are removed first; not what was to be kept.
    """
    parent = Path(os.environ.get("FAIRDROP_STATE_DIR") or CHECKOUT / ".fairdrop")
    parent.mkdir(parents=True, exist_ok=True)
    remove_left_behind(parent, prefix=prefix)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{'kept-' if keep else own_mark()}", dir=parent))
    folder.chmod(PASS)
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def write_page(report: Report, *, name: str, out: Path, picture: str = "") -> None:
    """Write `name`.md and its twins into `out`. picture: the text of an SVG."""
    out.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.md": markdown(report), f"{name}.json": as_json(report)}
    if picture:
        files[f"{name}.svg"] = picture
    for file_name, text in files.items():
        (out / file_name).write_text(text)
    say(f"Written to {out}: {', '.join(files)}")
