"""Checks the public log of each flooded sale, and the tickets that its buyers were given, with the script that any
stranger may use. Never asks the shop's books.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from loadtest.record.log_sentences import CHECKED, HOLDS, HOLDS_BUT, NO_LOG
from loadtest.record.tickets import PREFIX, read_tickets
from loadtest.shop_api import NotThere, ShopApi, ShopError
from loadtest.verify.verify_sale import Verifier

# The notary publishes within a second; a machine that was just flooded may take longer.
PATIENCE_SECONDS = 60.0
TICK_SECONDS = 0.5


def check_log(api: ShopApi, slug: str, *, audit: dict[str, Any] | None, folder: Path) -> str:
    """Return a sentence on the log of a sale that is at rest; is_in_order says whether it holds by every rule.

    audit: of the sale at rest; the log is waited for until it has as many decisions. folder: where the run kept its
    tickets. A shop that publishes no keys and signs no tickets has no logs, and passes.
    """
    verifier = Verifier(api.fetch, slug)
    try:
        verifier.read_keys()
    except NotThere:
        is_signed = any(ticket.startswith(PREFIX) for ticket in read_tickets(folder, sale=slug))
        return f"The shop signs tickets of {slug} and publishes no key." if is_signed else f"{slug} {NO_LOG}"
    except (ShopError, ValueError, KeyError, TypeError) as error:
        return f"The keys of the public log of {slug} cannot be read: {error}"
    decided = int((audit or {}).get("counts", {}).get("decided") or 0)
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        tickets, unsigned = _show_all(verifier, folder, slug)
        is_begun = _read_on(verifier)
        while _is_behind(verifier, decided, is_begun=is_begun) and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
            is_begun = _read_on(verifier)
        if not is_begun:
            return f"{slug} has no public log, and the shop publishes keys for logs: does its notary run?"
        _finish(verifier)
    except (ShopError, ValueError, KeyError, TypeError) as error:
        return f"The public log of {slug} cannot be read: {error}"
    faults = _faults(verifier, decided, unsigned)
    read = f"{verifier.replay.size:,} leaves, {len(verifier.replay.places):,} places, {tickets:,} tickets"
    if faults:
        return f"The public log of {slug} ({read}) does not hold: {'; '.join(faults)}"
    left = " and ".join(verifier.replay.unjudged)
    return f"{CHECKED}{slug}: {read}, {HOLDS_BUT.format(left) if left else HOLDS}"


def _show_all(verifier: Verifier, folder: Path, slug: str) -> tuple[int, int]:
    """Show every ticket that was kept; return how many were shown, and how many are not signed."""
    tickets = unsigned = 0
    for ticket in read_tickets(folder, sale=slug):
        if ticket.startswith(PREFIX):
            verifier.show(ticket)
            tickets += 1
        else:
            unsigned += 1
    return tickets, unsigned


def _faults(verifier: Verifier, decided: int, unsigned: int) -> list[str]:
    """Return what is wrong with a log that was read to its end."""
    faults = [f"{rule}: {found[0]}" for rule, found in verifier.replay.faults.items()]
    if _decided(verifier) < decided:
        faults.append(f"{_decided(verifier):,} of {decided:,} decisions are published")
    if missing := _missing(verifier):
        faults.append(f"places of tickets that are not in the log: {len(missing):,}, the first {missing[0]}")
    if unsigned:
        faults.append(f"tickets that are not signed for it, so nobody can check them: {unsigned:,}")
    return faults


def _finish(verifier: Verifier) -> None:
    now_us = time.time_ns() // 1000
    try:
        verifier.finish(now_us)
    except ShopError:  # the shop did not say when the sale ends; its log was read all the same
        verifier.replay.finish(now_us)


def _read_on(verifier: Verifier) -> bool:
    """Read what is new of a log; return whether it has begun."""
    try:
        verifier.round()
    except NotThere:
        return False
    return True


def _is_behind(verifier: Verifier, decided: int, *, is_begun: bool) -> bool:
    is_short = _decided(verifier) < decided or bool(_missing(verifier))
    return not is_begun or (is_short and not verifier.replay.faults)


def _missing(verifier: Verifier) -> list[int | str]:
    """Return the places that tickets name and the log neither has nor declares lost.

    At rest the notary has nothing left to publish, so they are faults, however new they are.
    """
    replay = verifier.replay
    keys = [key for key in replay.tickets if key not in replay.given]
    return [key for key in keys if not (replay.lost if isinstance(key, str) else replay.is_lost(key))]


def _decided(verifier: Verifier) -> int:
    return sum(place["state"] not in ("waits", "back", "late") for place in verifier.replay.places.values())
