"""How long the shop is flooded, with a shard and without it: in full, and to see that it works; and how. Pure."""

from __future__ import annotations

from loadtest.bench.capacity.plan import Deployment, Plan

SHOP = Deployment(masters=3)
# As many pairs forwards as backwards: the shop grows slower with each order, and that must fall on both sides alike.
FULL = Plan(rounds=6, seconds=20.0)
QUICK = Plan(rounds=2, seconds=5.0, warm_up_seconds=1.0)
# At the SKUs of the shard that goes away, in both kinds of window alike.
KNOCKS_PER_SECOND = 10
METHOD = (
    "One shop: a Cluster of three Valkeys without replicas, with every write on disk before its answer; PostgreSQL; "
    "one web process and one settler. {skus} SKUs lie on the three shards. The one that goes away is the one that also "
    "has the list of all SKUs.",
    "{rounds} pairs of windows of {seconds:g} s, in turns, every second pair backwards: in one all shards answer, in "
    "the other one that shard is frozen (SIGSTOP) as the window begins, and goes on after it. So the time until the "
    "processes know that it is away is a part of the window. Until the next window its SKUs must be entered again, "
    "and everything must be decided.",
    "{connections} connections ask for units of the SKUs on the other two shards, one request in flight on each, every "
    "request by a buyer never seen before; any answer but 202 and 503 fails the run. Admissions are answers with 202; "
    "decisions are orders decided in PostgreSQL within the window.",
    "In both windows somebody also asks for a SKU of the shard that goes away, "
    f"{KNOCKS_PER_SECOND} times a second at most. While "
    "it is frozen every answer to that must be 503, else it was not away, and the run fails.",
    "Of each pair the ratio is taken; the figure is the median of the ratios. Afterwards the audit of every sale must "
    "find nothing.",
)
