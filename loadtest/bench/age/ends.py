"""Measures the expirer of one shop: how late very many holds end, and what a look costs when there are none.
Never measures alongside other work: only the expirer and the stores run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from loadtest.bench.age import shops
from loadtest.bench.age.plan import Plan
from loadtest.bench.age.processes import AgeShop, core_shares
from loadtest.bench.harness.benchmark import say

EXPIRER = "expirer"
# What is still to be ended after the last hold's time gets so long.
TAIL_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Ends:
    """How late holds ended, in seconds; sweeping: shares of a core before and after many holds had ended."""

    holds: int
    ended: int
    late_p50_seconds: float
    late_p99_seconds: float
    latest_seconds: float
    sweeping: float
    sweeping_after: float


def measure_ends(shop: AgeShop, *, plan: Plan) -> Ends:
    """Let an expirer sweep when nothing is held, again after many holds have ended, and then end many."""
    with shop.running(workers=[], web=False):
        without = share_of(shop, seconds=plan.sweep_seconds)
    with shop.running(workers=[EXPIRER], web=False):
        time.sleep(plan.rest_seconds)
        sweeping = share_of(shop, seconds=plan.sweep_seconds) - without
    shop.hand.ask(shops.end_without_vacuum, holds=plan.ended_holds)
    with shop.running(workers=[], web=False):
        without = share_of(shop, seconds=plan.sweep_seconds)
    with shop.running(workers=[EXPIRER], web=False):
        time.sleep(plan.rest_seconds)
        after = share_of(shop, seconds=plan.sweep_seconds) - without
        say(f"  sweeping: {sweeping:.2%} of a core, {after:.2%} after {plan.ended_holds:,} holds have ended")
        sale_id, left = shop.hand.ask(shops.write_ending, holds=plan.ending_holds, seconds=plan.ending_seconds)
        time.sleep(left + TAIL_SECONDS)
        holds, ended, p50, p99, latest = shop.hand.ask(shops.lateness, sale_id=sale_id)
    say(f"  {ended:,} of {holds:,} holds ended: p50 {p50:.2f} s late, p99 {p99:.2f} s, the last {latest:.2f} s")
    return Ends(
        holds=holds,
        ended=ended,
        late_p50_seconds=p50,
        late_p99_seconds=p99,
        latest_seconds=latest,
        sweeping=sweeping,
        sweeping_after=after,
    )


def share_of(shop: AgeShop, *, seconds: float) -> float:
    """Return the share of a core that everything of the shop uses."""
    return sum(core_shares([shop], seconds=seconds)[0].values())
