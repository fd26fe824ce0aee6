"""How long the log is: in full, and to see that it works; and how it is measured, in sentences. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.bench.load.loader import LoadWindow


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. asked: buyers whose proofs are asked for; calls: of each kind.

    road_rounds: turns of the whole road with logs and without; paced_per_second: decisions, for the notary's lag.
    """

    leaves: int = 1_000_000
    asked: int = 100
    calls: int = 1_000
    road_rounds: int = 3
    road: LoadWindow
    paced_per_second: int = 5_000


FULL = Plan(road=LoadWindow(seconds=15.0, warm_up_seconds=3.0))
QUICK = Plan(
    leaves=20_000,
    asked=20,
    calls=100,
    road_rounds=1,
    road=LoadWindow(seconds=4.0, warm_up_seconds=1.0),
    paced_per_second=500,
)
METHOD = (
    "One web process, Valkey with every write on disk, PostgreSQL. The log has {leaves:,} leaves of one sale, written "
    "by the notary's own code without a sale: places, holds, payments, holds that end, and the rest told sold out.",
    "Checkpoints and proofs are asked for {calls:,} times each, one call after the other over one connection; proofs "
    "of {asked:,} buyers, evenly spread over the log.",
    "verify_sale.py is run as a stranger runs it, in a process of its own, from fetching the keys to its verdict.",
    "The page is opened in Chromium. Its first result is the signature of the checkpoint, checked in the browser; the "
    "last leaves stand in the page already. Where there is no Chromium, that figure is missing and the run fails.",
    "Whole road: as in `make bench-gate`, with tickets v2, logs and a notary, and without them, a fresh sale a turn; "
    "{road_rounds} rounds of {road.seconds:g} s in turns, the ratio is the middle of the rounds. Lag: how old the "
    "first event is that the log lacks, looked at twenty times a second; the longest one counts. Drained: when the log "
    "has all, after the last event. Once more at {paced_per_second:,} asks a second, evenly.",
    "What bounds it: browser, verifier, loader and all processes of the shop share the machine's cores.",
)
