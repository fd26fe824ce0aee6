"""How long and how often every way to sell is measured: in full, and to see that it works. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Plan:
    """seconds of selling without end; of the sell-out: units, buyers, and the most seconds it may take.

    undecided: with more buyers accepted and undecided than this, nobody clicks; twice_every: of so many wishes one is
    clicked twice.
    """

    seconds: float = 8.0
    warm_up_seconds: float = 1.5
    sold_out_units: int = 200
    sold_out_buyers: int = 3_000
    sold_out_seconds: float = 10.0
    connections: int = 256
    undecided: int = 2_000
    twice_every: int = 4
    units: int = 1_000_000
    seed: int = 20_251


FULL = Plan()
QUICK = Plan(seconds=1.5, warm_up_seconds=0.5, sold_out_units=50, sold_out_buyers=400, sold_out_seconds=4.0)
METHOD = (
    "One after the other in one run on one machine, with the same PostgreSQL (fsync on), the same Valkey (appendfsync "
    "always) and the same crowd, all on the same cores, nothing bound. The crowd is an epoll loop of our own with one "
    "request in flight on each of {connections} kept-alive connections; every {twice_every}th wish is clicked twice at "
    "once; who is told 503 asks again after a tenth of a second.",
    "Rivals are served by granian over WSGI, two workers with as many threads as suit each best of 2, 4 and 8, by "
    "Django without any middleware but one, with lasting connections and no health checks: they are given more than "
    "the shop gives itself. Fairdrop is its web process with one worker and one settler, as the demo starts them.",
    "Each begins when the cores are as fast as at best in this run, or after ten seconds.",
    "Selling: a stock without end, {warm_up_seconds:g} s of warm-up, then {seconds:g} s measured. Settled are the "
    "orders that PostgreSQL decided in those seconds. The crowd rests while more than {undecided:,} wishes are "
    "accepted and undecided. Commits (pg_stat_database), Redis commands (INFO commandstats, those inside scripts too) "
    "and CPU time (of the sellers' processes; of both stores') are those of the whole run, divided by all its orders.",
    "Selling out: {sold_out_units:,} units, {sold_out_buyers:,} wishes at once, {sold_out_seconds:g} s at most, fresh "
    "processes. To admission: from a click to its yes, held or queued. To decision: every second wish is followed from "
    "its first click to the answer that says held, waitlisted or sold out; a queued one looks again every 25 ms.",
    "Oversold: orders above the units. Lost: wishes that were accepted and that nobody ever decided. Undersold: units "
    "that nobody has although somebody was told sold out.",
)
