"""How much the benchmark of age measures: in full, and to see that it works; and how, in sentences. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.bench.age.past import CAPTURED, DECLINED
from loadtest.bench.age.shops import LOOKS
from loadtest.bench.load.loader import LoadWindow, asks_needed

WARM_UP_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured: sizes of the past, of the large sale and of the spread; rounds; seconds of each."""

    past_sales: int = 10_000
    past_orders: int = 1_000_000
    past_payments: int = 300_000
    pairs: int = 5
    seconds: float = 10.0
    idle_seconds: float = 15.0
    rest_seconds: float = 10.0
    retired_holds: int = 5_000
    large_records: int = 1_000_000
    spread_asks: int = 20_000
    spread_skus: int = 1_000
    spread_rounds: int = 3
    ended_holds: int = 1_000_000
    ending_holds: int = 100_000
    ending_seconds: float = 60.0
    sweep_seconds: float = 60.0
    asks_per_second: int = 200
    metrics_sales: int = 1_000
    longest_round_seconds: float = 900.0

    @property
    def window(self) -> LoadWindow:
        """How purchases are asked for in a round."""
        return LoadWindow(seconds=self.seconds, warm_up_seconds=WARM_UP_SECONDS, connections=16)

    @property
    def asks(self) -> int:
        """How many requests are enough for a round."""
        return asks_needed(per_second=self.asks_per_second, window=self.window)


FULL = Plan()
QUICK = Plan(
    past_sales=50,
    past_orders=5_000,
    past_payments=1_500,
    pairs=1,
    seconds=2.0,
    idle_seconds=3.0,
    rest_seconds=4.0,
    retired_holds=500,
    large_records=5_000,
    spread_asks=2_000,
    spread_skus=50,
    spread_rounds=1,
    ended_holds=5_000,
    ending_holds=2_000,
    ending_seconds=3.0,
    sweep_seconds=3.0,
    longest_round_seconds=75.0,
)
METHOD = (
    "Two shops on one machine, each with a PostgreSQL (fsync) and a Valkey (every write on disk) of its own, a web "
    "process, a settler, an expirer, a reconciler and a payments worker. All of them and the load generator share all "
    "cores; while one shop is measured the other one is idle, but for the last two measurements.",
    "The old shop has {past_sales:,} retired sales, each of a SKU of its own, with {past_orders:,} orders, "
    "{past_payments:,} payments "
    f"({CAPTURED:.0%} captured, {DECLINED:.0%} declined, the others never collected), their "
    "history and movements. Orders and payments are written by COPY. Then VACUUM ANALYZE, as autovacuum has done long "
    "before. Both shops have one sale with plenty and one that is sold out.",
    "{pairs} pairs of rounds of {seconds:g} s "
    f"after {WARM_UP_SECONDS:g} s of warm-up, one of each shop, now the one first and "
    "now the other. {asks_per_second} purchases a second at an even pace; any answer but 202 fails the run. Of each "
    "pair the ratio is taken; the figure is the median of the ratios.",
    "Ask to decision: from the moment Redis gave the place to the moment another connection sees the order committed; "
    "it looks every 2 ms. The wait for the 202 is printed on its own. CPU per purchase: all processes and stores of "
    "the shop, over the orders committed in the round; those looks are a part of it, in both shops.",
    "Idle: CPU time of each process of the old shop over {idle_seconds:g} s after each pair; the median of the pairs.",
    f"Looks: the workers' own functions, {LOOKS} times after each round, in a process alongside them; bounded is the "
    "median, the slowest is printed. Of the payments worker: its three queries for what is to be asked, without making "
    "their text, which costs the same whatever the past, and without asking. List of sales: median of 50 requests on "
    "one connection. My tickets, after the rounds: the same, for a buyer who has more orders than its page shows. "
    "Metrics with {metrics_sales:,} live sales: the CPU time in which a web process, and a reconciler, writes its "
    f"page, {LOOKS} times; those sales are made in memory and in no store, the median is bounded.",
    "Sold out from memory: the workers are stopped, because they run scripts too. Buyers fill the last room of a sale; "
    "that Redis counts script calls meanwhile is the control. Then strangers ask, and every script call that Redis "
    "counts is an answer that was not from memory.",
    "Retired: a sale with {retired_holds:,} orders whose holds have ended is closed and retired; the memory of every "
    "key of its SKU is read before and after.",
    "Spread: {spread_asks:,} requests in one SKU and in {spread_skus:,}, {spread_rounds} rounds in turns, admitted "
    "before the clock runs; the real settler alone. The figure is the median of the rounds' ratios.",
    "Large sale: the old shop has a live sale with {large_records:,} orders in every stage and as many records. From "
    "one comparison of it to the next, which begins after the reconciler's rest, the CPU time of web, settler, "
    "expirer, reconciler, payments worker and both stores is read. The benchmark's own process runs the reconciler's "
    "loop there, to know when a comparison begins and ends. Differences found fail the run.",
    "Ends of holds: meanwhile, in the shop without a past, with an expirer and the stores only. Sweeping is "
    "what the expirer and the stores use over {sweep_seconds:g} s less what the stores use without it, first when "
    "nothing is held, then after {ended_holds:,} holds have ended while no vacuum may run. Then {ending_holds:,} holds "
    "whose ends are spread over {ending_seconds:g} s: late is the moment of the change, by the database's clock, less "
    "the end of the hold.",
)
