"""Computes what a planned sale needs, and what a shop of given processes can do, from unit costs. Pure.
Never rounds a need down, and never calls enough what one process must do alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shop.capacity.costs import Costs

BATCH = 500
MIB, GIB = 2**20, 2**30
# Whatever the load: so that one may end while the other goes on.
MIN_WEB, MIN_SETTLERS = 2, 2
WEB, SETTLEMENT, REDIS, POSTGRES = "web", "settlement", "Redis", "PostgreSQL"
# One that can take the place of each that keeps data.
COPIES = 2


@dataclass(frozen=True, kw_only=True)
class PlannedSale:
    """What is planned. seconds: in which all `buyers` press, `presses` times each; units, spread over `skus` evenly.

    room: places of each line beyond its units; readers: sale pages a second; streams: held open at once, None: one for
    each that is admitted; ticket_seconds: in which all who are admitted open their ticket page, 0: nobody does;
    pay_seconds: in which all units are paid; kept: the crowd comes through a proxy whose connections stay open;
    busy: the share of a core that is used at most; hours: for which the machines are paid.
    """

    buyers: int
    seconds: float = 10.0
    presses: float = 1.0
    units: int = 1_000
    skus: int = 1
    room: int = 200
    readers: float = 0.0
    streams: int | None = None
    ticket_seconds: float = 60.0
    pay_seconds: float = 600.0
    kept: bool = False
    busy: float = 0.7
    hours: float = 24.0

    def __post_init__(self) -> None:
        """Raise ValueError, naming each value that makes no sense."""
        whole = {name: getattr(self, name) for name in ("buyers", "units", "skus")}
        above = {name: getattr(self, name) for name in ("seconds", "pay_seconds", "busy", "hours")} | whole
        from_zero = {name: getattr(self, name) for name in ("room", "readers", "ticket_seconds")}
        from_zero["streams"] = self.streams or 0
        faults = [f"{name} must be above 0" for name, value in above.items() if not 0 < value < math.inf]
        faults += [f"{name} must not be below 0" for name, value in from_zero.items() if not 0 <= value < math.inf]
        if not 1 <= self.presses < math.inf:
            faults.append("presses must be 1 or more: each buyer presses at least once")
        if self.busy > 1:
            faults.append("busy is a share: 1 at most")
        if self.skus > self.units:
            faults.append("skus must not be more than units: each has one at least")
        if faults:
            raise ValueError("; ".join(faults))

    @property
    def admitted(self) -> int:
        """Return how many are let into the lines."""
        return min(self.buyers, self.units + self.skus * self.room)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part at the peak. load: of what one process (of PostgreSQL: one machine) can do, so 1.0 is all of it.

    needed: how many; most: how many can share the work of this sale; alone_seconds: how long what cannot be shared, the
    work for one SKU, takes at least.
    """

    name: str
    load: float
    needed: int
    most: float = math.inf
    alone_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What the sale needs. first: which part is full first when there is one of each.

    walls: parts that no further process makes faster, so that decisions come later than the buyers press; machines: of
    the size that the costs name, and those that stand by.
    """

    presses_a_second: float
    admitted: int
    parts: tuple[Part, ...]
    first: str
    walls: tuple[str, ...]
    decided_after_seconds: float
    payments_a_second: float
    payments_proved: float
    redis_gib: float
    processes_gib: float
    machines: int
    cores: int
    price: float

    def part(self, name: str) -> Part:
        """Return the part of that name."""
        return next(each for each in self.parts if each.name == name)


def settle_seconds(costs: Costs, *, requests: float) -> float:
    """Return how long one SKU's requests take under its lock, in the batches in which they come at a peak.

    A batch takes a fixed time and one for each request; both follow from what batches of 1 and of 500 came to.
    """
    single, whole = 1 / costs["settled_1"], BATCH / costs["settled_500"]
    each = max((whole - single) / (BATCH - 1), 0.0)
    return math.ceil(requests / BATCH) * (single - each) + requests * each


def needs_of(plan: PlannedSale, *, costs: Costs) -> Needs:
    """Return what `plan` needs."""
    settlement, redis, web = _settlement(plan, costs), _redis(plan, costs), _web(plan, costs)
    decided_after = max(plan.seconds, settlement.alone_seconds, redis.alone_seconds)
    postgres = _postgres(plan, costs, seconds=decided_after)
    parts = (web, settlement, redis, postgres)
    redis_gib = plan.admitted * costs["place_bytes"] / GIB
    processes_gib = (web.needed * costs["web_mib"] + settlement.needed * costs["settler_mib"]) * MIB / GIB
    rented = [
        _rent(costs, cores=web.needed + settlement.needed, gib=processes_gib, min_machines=COPIES),
        # Its memory twice: while it rewrites its file.
        *COPIES * [_rent(costs, cores=redis.needed, gib=2 * redis_gib)],
        *COPIES * [_rent(costs, cores=math.ceil(postgres.load * costs.machine.max_cores / plan.busy))],
    ]
    machines, cores = (sum(each) for each in zip(*rented, strict=True))
    return Needs(
        presses_a_second=plan.buyers * plan.presses / plan.seconds,
        admitted=plan.admitted,
        parts=parts,
        first=max(parts, key=lambda part: part.load).name,
        walls=tuple(part.name for part in parts if part.alone_seconds > plan.seconds),
        decided_after_seconds=decided_after,
        payments_a_second=min(plan.units, plan.admitted) / plan.pay_seconds,
        payments_proved=costs["payments"],
        redis_gib=redis_gib,
        processes_gib=processes_gib,
        machines=machines,
        cores=cores,
        price=cores / costs.machine.cores * costs.machine.price_an_hour * plan.hours,
    )


def _web(plan: PlannedSale, costs: Costs) -> Part:
    presses, streams = plan.buyers * plan.presses, plan.admitted if plan.streams is None else plan.streams
    if plan.kept:
        pressing = plan.admitted / costs["admissions"] + (presses - plan.admitted) / costs["sold_out"]
    else:
        pressing = presses * costs["press_us"] / 1e6
    load = pressing / plan.seconds + plan.readers / costs["page"] + streams * costs["stream_us"] / 1e6
    if plan.ticket_seconds:
        load += plan.admitted / plan.ticket_seconds / costs["ticket_page"]
    return Part(name=WEB, load=load, needed=max(MIN_WEB, math.ceil(load / plan.busy)))


def _settlement(plan: PlannedSale, costs: Costs) -> Part:
    alone = settle_seconds(costs, requests=plan.admitted / plan.skus)
    load = plan.skus * alone / plan.seconds
    enough = min(math.ceil(load / plan.busy), plan.skus)
    return Part(name=SETTLEMENT, load=load, needed=max(MIN_SETTLERS, enough), most=plan.skus, alone_seconds=alone)


def _redis(plan: PlannedSale, costs: Costs) -> Part:
    # A refused buyer asks Redis too, until web processes know that nothing is left: the larger of both measurements.
    work = max(plan.admitted * costs["redis_us"], plan.buyers * plan.presses * costs["press_redis_us"]) / 1e6
    load = work / plan.seconds
    enough = min(math.ceil(load / plan.busy), plan.skus)
    return Part(name=REDIS, load=load, needed=max(1, enough), most=plan.skus, alone_seconds=work / plan.skus)


def _postgres(plan: PlannedSale, costs: Costs, *, seconds: float) -> Part:
    load = plan.admitted * costs["postgres_us"] / 1e6 / seconds / costs.machine.max_cores
    return Part(name=POSTGRES, load=load, needed=max(1, math.ceil(load / plan.busy)), most=plan.skus)


def _rent(costs: Costs, *, cores: int, gib: float = 0.0, min_machines: int = 1) -> tuple[int, int]:
    """Return how many machines of one size have so many cores and GiB, `min_machines` or more, and all their cores."""
    machine = costs.machine
    wanted = max(cores, math.ceil(gib * machine.cores / machine.memory_gib))
    count = max(min_machines, math.ceil(wanted / machine.max_cores))
    size = machine.cores
    while size * count < wanted:
        size *= 2
    return count, count * size


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A shop that runs: how many of each there are, on how many cores in all. generator_us: of the load on them."""

    web: int
    settlers: int
    masters: int
    skus: int
    cores: float
    generator_us: float = 0.0


def most_a_second(layout: Layout, *, costs: Costs) -> tuple[float, str]:
    """Return how many purchases a second go from ask to decision at most, and what bounds them.

    Each process has a core at most, and all together have the cores of the machine, the load generator with them.
    """
    work = {name: costs[name] for name in ("web_us", "settler_us", "redis_us", "postgres_us")}
    bounds = {
        WEB: layout.web * 1e6 / work["web_us"],
        SETTLEMENT: min(layout.settlers, layout.skus) * costs["settled_500"],
        REDIS: min(layout.masters, layout.skus) * 1e6 / work["redis_us"],
        "cores": layout.cores * 1e6 / (sum(work.values()) + layout.generator_us),
    }
    name = min(bounds, key=lambda each: bounds[each])
    return bounds[name], name
