"""Offers more and more until the shop no longer keeps up, then four times that, then half of it again.
Never slows its arrivals down for a shop that is slow.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.db import connection

from loadtest.bench.gate.end_to_end import wait_until_decided
from loadtest.bench.harness.benchmark import repeat_disturbed, say
from loadtest.bench.harness.fixtures import Fixture, decided_between
from loadtest.bench.harness.machine import GENERATOR, Stolen, microseconds_each, used
from loadtest.bench.harness.report import quantile, ratio
from loadtest.bench.harness.servers import RunningShop
from loadtest.bench.load.arrivals import Answers, ArrivalRun, evenly
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import endless_payloads, fresh_payloads

ADMITTED = 202
LEAD_SECONDS = 3.0
READY_SECONDS = 1.0  # the crowd stands ready so long before its first click
# A buyer whose click could not even be sent for so long gives up.
PATIENCE_SECONDS = 1.0
# More than the shop has ever taken in; beyond it payloads are made while they are sent.
READY_PER_SECOND = 18_000
DECIDED = """
SELECT floor(extract(epoch FROM decided_at) - %(begin)s)::int, count(*) FROM shop_order
WHERE sale_id = %(sale)s AND decided_at >= to_timestamp(%(begin)s) GROUP BY 1
"""
# Keeping up: so much of what is offered is decided within the same seconds.
KEEPS_UP = 0.95
FIRST_PER_SECOND = 6_000.0
GROWTH = 1.25
# The knee lies between two rates this close to each other.
CLOSE_ENOUGH = 1.07
MIN_PER_SECOND = 50.0


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """How an overload is measured. connections: as many buyers wait for an answer at most; calm: share of the knee."""

    step_seconds: float = 4.0
    step_warm_up_seconds: float = 1.0
    max_steps: int = 8
    calm_seconds: float = 6.0
    overload_seconds: float = 60.0
    after_seconds: float = 15.0
    connections: int = 4_096
    calm: float = 0.5
    overload: float = 4.0
    tolerance: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One offered rate and what came of it, both a second; waits in ms from the intended moment to the 202.

    cpu_us: µs of CPU of each part for an answer. stolen: share of the machine's time that its host gave to others.
    """

    offered: float
    goodput: float
    wait_p50_ms: float = 0.0
    wait_p99_ms: float = 0.0
    cpu_us: Mapping[str, float] = field(default_factory=dict)
    stolen: float = 0.0

    @property
    def keeps_up(self) -> bool:
        """Say whether what was offered was decided as fast."""
        return self.goodput >= KEEPS_UP * self.offered


@dataclass(frozen=True, kw_only=True)
class OverloadRun:
    """What came of it. Every second of the run: decided, and the p99 in ms to a 202 of those who came in it.

    begin, end: of the overload, in those seconds; sent: share of what was offered then that could be sent; cpu_us: of
    each part for an answer, over the whole run; shop_cpu_us: of all parts but the generator for a decision, over the
    whole run; stolen: share of the machine's time that its host gave to others, over the whole run.
    """

    steps: Sequence[Step]
    knee: Step
    begin: int
    end: int
    decided: Sequence[int]
    p99_ms: Sequence[float]
    offered: float
    goodput: float
    sent: float
    normal_p99_ms: float
    well_after_seconds: float
    cpu_us: Mapping[str, float] = field(default_factory=dict)
    shop_cpu_us: float = float("nan")
    stolen: float = 0.0


def next_offer(steps: Sequence[Step]) -> float | None:
    """Return the rate to offer next, None when the knee is known well enough."""
    if not steps:
        return FIRST_PER_SECOND
    kept = [step.offered for step in steps if step.keeps_up]
    failed = [step.offered for step in steps if not step.keeps_up]
    if not failed:
        return max(kept) * GROWTH
    if not kept:
        lower = min(failed) / 2
        return lower if lower >= MIN_PER_SECOND else None
    below, above = max(kept), min(failed)
    if above <= below * CLOSE_ENOUGH:
        return None
    return float((below * above) ** 0.5)


def knee_of(steps: Sequence[Step]) -> Step | None:
    """Return the step at the knee: of those that kept up, the one with the highest rate; None when none did."""
    return max((step for step in steps if step.keeps_up), key=lambda step: step.offered, default=None)


def well_after(p99_ms: Sequence[float], *, normal_ms: float, tolerance: float) -> float:
    """Return after how many seconds every later second's p99 is within `tolerance` × normal; inf when never.

    p99_ms: one for each second after the end of the overload.
    """
    for second in range(len(p99_ms)):
        if all(value <= tolerance * normal_ms for value in p99_ms[second:]):
            return float(second)
    return float("inf")


def spread(values: Sequence[float]) -> float:
    """Return how far the values lie from their middle at most, as a share of it: 0.15 means ± 15 %."""
    lowest, highest = min(values), max(values)
    return (highest - lowest) / (highest + lowest) if highest + lowest > 0 else float("nan")


def measure_overload(fixture: Fixture, shop: RunningShop, *, pressure: Pressure) -> OverloadRun:
    """Find the knee, go beyond it, come back. Raises LoadFailed when there is no rate at which the shop keeps up."""
    steps: list[Step] = []
    while len(steps) < pressure.max_steps and (offered := next_offer(steps)) is not None:
        once = partial(_step, fixture, shop, offered=offered, pressure=pressure)
        steps.append(repeat_disturbed(once))
    knee = knee_of(steps)
    if knee is None:
        raise LoadFailed("the shop kept up with no rate that was offered")
    say(f"  the knee: {knee.offered:,.0f} a second; now {pressure.overload:g} times that")
    return repeat_disturbed(partial(_go_beyond, fixture, shop, steps=steps, knee=knee, pressure=pressure))


def _step(fixture: Fixture, shop: RunningShop, *, offered: float, pressure: Pressure) -> Step:
    warm_up, seconds = pressure.step_warm_up_seconds, pressure.step_seconds
    payloads = fresh_payloads(fixture.slug, port=shop.web.port, count=int(offered * (warm_up + seconds)) + 1)
    moments = evenly((offered, warm_up + seconds))
    drive = _drive(fixture, shop, payloads, moments, connections=pressure.connections)
    answers, begins_at = drive.answers, drive.begins_at
    waits = answers.waits_ms(ADMITTED, begin=warm_up)
    return Step(
        offered=offered,
        goodput=decided_between([fixture.sale_id], begin=begins_at + warm_up, seconds=seconds)[0] / seconds,
        wait_p50_ms=quantile(waits, 0.5),
        wait_p99_ms=quantile(waits, 0.99),
        cpu_us=drive.cpu_us,
        stolen=drive.stolen,
    )


@dataclass(frozen=True, kw_only=True)
class Drive:
    """What a crowd was answered, when it began, each part's CPU µs for an answer, and what the host took meanwhile."""

    answers: Answers
    begins_at: float
    cpu_us: dict[str, float]
    stolen: float


def _drive(
    fixture: Fixture, shop: RunningShop, payloads: Iterable[bytes], moments: Iterable[float], *, connections: int
) -> Drive:
    """Let a crowd ask, and wait until all is decided."""
    begins_at = time.time() + LEAD_SECONDS
    crowd = ArrivalRun(shop.web.port, connections=connections, patience_seconds=PATIENCE_SECONDS)
    crowd.connect()
    time.sleep(max(0.0, begins_at - time.time() - READY_SECONDS))  # a shop that rests until then is not measured
    before, own, stolen = shop.crew.read(), time.process_time(), Stolen()
    answers = crowd.run(payloads, moments, begins_at=begins_at)
    own = time.process_time() - own
    wait_until_decided(fixture.sku)
    cpu_us = microseconds_each(used(before, shop.crew.read(), generator=own), answers=len(answers.status))
    return Drive(answers=answers, begins_at=begins_at, cpu_us=cpu_us, stolen=stolen.share())


def _go_beyond(
    fixture: Fixture, shop: RunningShop, *, steps: Sequence[Step], knee: Step, pressure: Pressure
) -> OverloadRun:
    calm, storm = pressure.calm * knee.offered, pressure.overload * knee.offered
    seconds = pressure.overload_seconds
    moments = evenly((calm, pressure.calm_seconds), (storm, seconds), (calm, pressure.after_seconds))
    slug, port = fixture.slug, shop.web.port
    ready = fresh_payloads(slug, port=port, count=int(READY_PER_SECOND * seconds))
    payloads = itertools.chain(ready, endless_payloads(slug, port=port))
    drive = _drive(fixture, shop, payloads, moments, connections=pressure.connections)
    answers, begins_at = drive.answers, drive.begins_at
    begin = int(pressure.calm_seconds)
    end = begin + int(seconds)
    last = end + int(pressure.after_seconds)
    waits = answers.waits_by_second(ADMITTED)
    # The first second also opens what had rested: it is not the normal one.
    normal_ms = quantile(answers.waits_ms(ADMITTED, begin=1.0, end=begin), 0.99)
    return OverloadRun(
        steps=steps,
        knee=knee,
        begin=begin,
        end=end,
        decided=_decided_each_second(fixture, begins_at, seconds=last),
        p99_ms=[quantile(waits.get(second, []), 0.99) for second in range(last)],
        offered=storm,
        goodput=decided_between([fixture.sale_id], begin=begins_at + begin, seconds=seconds)[0] / seconds,
        sent=share_sent(answers.given_up, begin=begin, end=end, offered=int(storm * seconds)),
        normal_p99_ms=normal_ms,
        cpu_us=drive.cpu_us,
        shop_cpu_us=_cpu_of_a_decision(answers, drive.cpu_us),
        stolen=drive.stolen,
        well_after_seconds=well_after(
            [p99_of_all(waits.get(second, []), offered=int(calm)) for second in range(end, last)],
            normal_ms=normal_ms,
            tolerance=pressure.tolerance,
        ),
    )


def p99_of_all(waits_ms: Sequence[float], *, offered: int) -> float:
    """Return the p99 in ms of the wait to a 202 of everybody `offered`: for ever for those who were not told it."""
    return quantile([*waits_ms, *[math.inf] * (offered - len(waits_ms))], 0.99)


def share_sent(given_up: Iterable[float], *, begin: float, end: float, offered: int) -> float:
    """Return the share of those `offered` from `begin` to `end` who did not give up before their click was sent."""
    return 1 - sum(begin <= moment < end for moment in given_up) / offered


def _cpu_of_a_decision(answers: Answers, cpu_us: Mapping[str, float]) -> float:
    """Return the µs of CPU of all parts but the generator for a decision: everybody who was admitted has one by now."""
    shop_us = len(answers.status) * sum(each for part, each in cpu_us.items() if part != GENERATOR)
    return ratio(shop_us, answers.statuses().get(ADMITTED, 0))


def _decided_each_second(fixture: Fixture, begin: float, *, seconds: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(DECIDED, {"sale": fixture.sale_id, "begin": begin})
        found = dict(cursor.fetchall())
    return [found.get(second, 0) for second in range(seconds)]
