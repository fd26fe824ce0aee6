"""`python -m loadtest.mutants.one_run`: one flood of a whole shop of its own, with one guard off or none, and trouble.
Writes result.json into its folder; its exit code says only whether the run came to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadtest.checker.verdict import AUDIT_FILE, VERDICT_FILE
from loadtest.mutants.watching import RunSpoiled
from loadtest.record.expectations import FULL_SET, OF_SHORT_LINES
from loadtest.record.log_sentences import LOGS_FILE, NO_LOG, is_in_order
from workers.embedded.child_process import ChildProcess, adopt_orphans
from workers.embedded.stores import start_both

CHECKOUT = Path(__file__).resolve().parents[2]
RESULT_FILE = "result.json"
LOG_CHECK = "public log"
PACKAGES = ("django", "redis", "psycopg", "uvicorn", "httptools", "locust")
# Held long enough that on a busy machine too who means to pay does; a line long enough that somebody is sold out.
UNITS, LINE_CAPACITY, HOLD_SECONDS = 40, 120, 5
# So many of them staff do not find while a settler is frozen with a batch that was taken for all of them.
MISCOUNTED = 10
# Nobody waits for these: who is told that the line is full stands by, and gets what comes back.
WITHOUT_CAPACITY = "sneaker"
BUYERS, ATTEMPTS, USERS = 600, 4_000, 20
# One sale lets a buyer have two units: there a second click that counts as a wish of its own is not over the limit.
LIMITS = {"lantern": 1, "sneaker": 1, "teapot": 2}
# Far longer than any settler is frozen: it wakes in the belief that the lock is its own.
LOCK_TTL_MS = 120_000
# A buyer who waits for an answer that never comes is patient for two minutes.
FLOOD_SECONDS = 400.0


def main(arguments: list[str]) -> int:
    """Run once; return 0 when there is a result."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.mutants.one_run", description=__doc__)
    parser.add_argument("--mutant", default="", help="the guard to switch off; none: the shop as it is")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    adopt_orphans()
    began = time.monotonic()
    try:
        result = _run(options.folder, mutant=options.mutant, seed=options.seed)
    except RunSpoiled as error:
        print(error, file=sys.stderr)
        return 1
    result["seconds"] = round(time.monotonic() - began, 1)
    (options.folder / RESULT_FILE).write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _run(folder: Path, *, mutant: str, seed: int) -> dict[str, Any]:
    with start_both(folder / "servers") as servers:
        environment = _environment(folder, addresses=servers.environment)
        os.environ |= environment
        _make_shop(mutant)
        # Only now: they need the settings, which need the addresses.
        from loadtest.bench.harness import machine
        from loadtest.mutants.processes import running
        from loadtest.mutants.trouble import Trouble

        own = {**os.environ, "FAIRDROP_LOCK_TTL_MS": str(LOCK_TTL_MS)}
        if mutant:  # this process looks on as it is
            own |= {"DJANGO_SETTINGS_MODULE": "loadtest.mutants.settings", "FAIRDROP_MUTANT": mutant}
        with running(own, folder=folder) as shop:
            flood = _flood(shop.url, environment=own, folder=folder, seed=seed).start()
            try:
                trouble = Trouble(shop, skus=sorted(LIMITS), units=UNITS, miscounted=MISCOUNTED)
                trouble.make()
                flood.wait(timeout_seconds=FLOOD_SECONDS)
            finally:
                flood.stop()
        facts = machine.facts(packages=PACKAGES)
    return {
        "mutant": mutant,
        "missed": trouble.missed,
        "facts": facts,
        **_verdict(folder),
    }


def _environment(folder: Path, *, addresses: Mapping[str, str]) -> dict[str, str]:
    return {
        **addresses,
        "CACHE_URL": addresses["REDIS_URL"],
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "FAIRDROP_ENV": "test",
        "FAIRDROP_FAULT": "",
        "FAIRDROP_BEHIND_TLS": "0",
        "FAIRDROP_TRUSTED_PROXIES": "1",
        "FAIRDROP_STATE_DIR": str(folder / "state"),
        "FAIRDROP_AUDIT_TOKEN": secrets.token_hex(16),
    }


def _make_shop(mutant: str) -> None:
    """Make tables and goods; the tables without the mutant's layers."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from django.db import connection

    from loadtest.mutants.guards import switch_off_in_tables
    from workers.demo.data import FLOOD, seed

    if mutant:
        with connection.cursor() as cursor:
            switch_off_in_tables(mutant, cursor)
    goods = (
        replace(
            each,
            units=UNITS,
            line_capacity=0 if each.slug == WITHOUT_CAPACITY else LINE_CAPACITY,
            hold_seconds=HOLD_SECONDS,
            per_buyer_limit=LIMITS[each.slug],
        )
        for each in FLOOD
    )
    seed(tuple(goods))


def _flood(url: str, *, environment: Mapping[str, str], folder: Path, seed: int) -> ChildProcess:
    words = ["--host", url, "--sales", ",".join(f"{sku}-drop" for sku in LIMITS), "--history", str(folder / "flood")]
    words += ["--buyers", str(BUYERS), "--attempts", str(ATTEMPTS), "--users", str(USERS)]
    words += ["--seed", str(seed), "--expects", ",".join(sorted(FULL_SET | OF_SHORT_LINES.keys()))]
    return ChildProcess(
        name="flood",
        arguments=[sys.executable, "-m", "loadtest.run_flood", *words],
        environment=environment,
        folder=CHECKOUT,
        log_path=folder / "flood.log",
    )


def _verdict(folder: Path) -> dict[str, Any]:
    """Return what the verdict says: green or not, each check that was broken, each invariant that the audits name.

    Green is only a run in which the public log of each sale holds by every rule.
    """
    flood = folder / "flood"
    if not (flood / VERDICT_FILE).exists():
        raise RunSpoiled(f"the flood ended without a verdict; see {folder / 'flood.log'}")
    verdict = json.loads((flood / VERDICT_FILE).read_text())
    books = json.loads((flood / AUDIT_FILE).read_text())
    invariants = [each for book in books.values() for each in (book["after"] or {}).get("invariants", [])]
    checks = {each["name"]: each["details"][:1] for each in verdict["checks"] if each["count"]}
    if unsound := log_faults(folder / "flood"):
        checks[LOG_CHECK] = unsound[:1]
    return {
        "green": verdict["ok"] and not unsound,
        "checks": checks,
        "invariants": sorted({each["id"] for each in invariants if not each["ok"]}),
        "asked": sum(sale["asked"] for sale in verdict["sales"]),
        "sold": sum(sale["units_sold"] for sale in verdict["sales"]),
    }


def log_faults(flood: Path) -> list[str]:
    """Return what a flood found wrong with the public logs of its sales; a log that it did not read is a fault."""
    file = flood / LOGS_FILE
    told = file.read_text().splitlines() if file.exists() else []
    faults = [text for text in told if not is_in_order(text) or text.endswith(NO_LOG)]
    return faults if len(told) == len(LIMITS) else [*faults, f"{len(told)} of {len(LIMITS)} public logs were read"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
