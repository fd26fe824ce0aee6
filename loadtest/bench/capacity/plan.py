"""Which shops are run, how long and how often: in full, and to see that it works; and how, in sentences. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """How many processes of each kind a shop has."""

    web: int = 1
    settlers: int = 1
    masters: int = 1

    @property
    def name(self) -> str:
        """What a figure calls it."""
        return f"{self.web} web, {self.settlers} settler{'s' * (self.settlers > 1)}, {self.masters} Redis"


# The first is measured once more, before all others: its unit costs are what predicts them all.
DEPLOYMENTS = (
    Deployment(),
    Deployment(web=2),
    Deployment(settlers=2),
    Deployment(masters=3),
    Deployment(web=2, settlers=2, masters=3),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. rounds: of each deployment, in turns; skus: sold at once, in sales of their own.

    speed_up, share: of the opening that is replayed: so much faster, and so much less of its presses a second.
    """

    rounds: int = 3
    seconds: float = 10.0
    warm_up_seconds: float = 2.0
    connections: int = 3072
    skus: int = 6
    speed_up: int = 10
    share: int = 2


FULL = Plan()
QUICK = Plan(rounds=1, seconds=3.0, warm_up_seconds=1.0, speed_up=50)
METHOD = (
    "Each shop is run on stores of its own making: one Valkey, or a Cluster of three masters, with every write on disk "
    "before its answer; PostgreSQL; web processes and settlers. {connections} connections ask for units of {skus} SKUs "
    "in turn, one request in flight on each, so that batches are as full as in an opening. Every request is by a buyer "
    "never seen before; any answer but 202 and 503 fails the run.",
    "First the smallest shop runs by itself: the CPU time of web, settler, Redis, PostgreSQL and load generator, "
    "over the orders it decided, are the unit costs. From these, and from nothing of the later runs, "
    "most_a_second of shop/capacity/prediction.py predicts every shop, the smallest one again too.",
    "{rounds} rounds of {seconds:g} s a shop, in turns, every second round backwards, each after a flood of "
    "{warm_up_seconds:g} s that does not count and a pause until no process has work. Counted are orders decided in "
    "PostgreSQL from the second second of the window on: by then each line has the most that the generator lets "
    "wait. Figures are medians.",
    "All processes share the cores of one machine, the load generator with them. So a prediction is the least of what "
    "each kind of process can do at most on cores of its own, and of all cores over the CPU time of all parts for one "
    "order, the generator's included. What other processes of the machine take meanwhile is measured and left out of "
    "its cores. On two cores that sum is what bounds every shop: that more processes do not help there is predicted "
    "too. Where each kind has cores of its own, the other bounds decide; a machine with two cores cannot show that.",
    "What a prediction is off by is its distance from the measured median, over that median. Afterwards the audit of "
    "every sale must find nothing.",
    "An opening for 1,000,000 buyers is replayed against the smallest shop: half of them press within 10 s, 300,000 in "
    "the next 50 s, the others in the nine minutes after. It runs {speed_up} times as fast, with 1/{share} of the "
    "presses a second, so it stands for a shop of {share} times the capacity in which all {share} shares come at once. "
    "There is a unit for everybody. The prediction lets buyers through one by one at the pace that was predicted for "
    "that shop. The n-th decision in PostgreSQL is compared with the n-th press, and times are those of the whole "
    "opening: {speed_up} times what was measured. What a network, a proxy or a hundred processes add is not in it.",
)
