"""Opens the doors to a crowd that stands before them: every buyer asks in the same instant, each over a connection.
Never counts a wait from later than that instant.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from django.conf import settings
from django.db import connection

from inventory.line import reading
from inventory.redis import connect
from loadtest.bench.harness.fixtures import Goods
from loadtest.bench.harness.shares import Crew, used
from loadtest.bench.load.arrivals import Answers, ask_together, go_home, prepare, stand_ready
from loadtest.bench.load.payloads import fresh_wishes
from loadtest.bench.load.subprocesses import hands_of
from loadtest.bench.load.wire import LoadFailed

ADMITTED, REFUSED = 202, 409
RETRY_SECONDS = 1.0  # as Retry-After of a 503 says
CALM_SECONDS = 0.5  # nobody was admitted and nothing decided for so long: it is over
MAX_SECONDS = 60.0
LAST_DECISION = "SELECT extract(epoch FROM max(decided_at)), count(*) FROM shop_order WHERE sale_id = %s"


@dataclass(frozen=True, kw_only=True)
class Spike:
    """Waits in ms from the instant; last_decision_seconds: from the instant to the last decision in PostgreSQL.

    statuses: how many buyers had each as their last answer; shed: 503 that were sent again.
    cpu_seconds: what each part used, from the opening to the last answer.
    """

    waits_ms: Mapping[int, list[float]]
    statuses: Mapping[int, int]
    shed: int
    silent: int
    last_decision_seconds: float = 0.0
    decided: int = 0
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        """Buyers who were told neither a place nor sold out in the end."""
        return self.silent + sum(count for status, count in self.statuses.items() if status not in (ADMITTED, REFUSED))


@dataclass(frozen=True, kw_only=True)
class SpikeGate:
    """When they open (s since 1970), and what is sold behind them; None: nothing."""

    opens_at: float
    goods: Goods | None = None


def measure_spike(
    slug: str, *, port: int, buyers: int, generators: int, crew: Crew, open_doors: Callable[[], SpikeGate]
) -> Spike:
    """Let `buyers` ask for `slug` from `generators` processes at the moment that `open_doors` returns.

    It is called when every connection is open. Raises LoadFailed.
    """
    wishes = fresh_wishes(slug, port=port, count=buyers)
    shares = [wishes[number::generators] for number in range(generators)]
    names = [f"crowd {number}" for number in range(generators)]
    answers = Answers()
    with (
        hands_of(names, redis_url=settings.REDIS_URL, load=prepare, cores=os.sched_getaffinity(0)) as hands,
        ThreadPoolExecutor(generators) as threads,
    ):
        crowds = list(zip([hands[name] for name in names], shares, strict=True))
        for ready in [
            threads.submit(hand.ask, stand_ready, port=port, buyers=len(share), retry_seconds=RETRY_SECONDS)
            for hand, share in crowds
        ]:
            ready.result()
        doors = open_doors()
        before, own = crew.read(), sum(hand.ask(time.process_time) for hand, _ in crowds)
        for asked in [
            threads.submit(hand.ask, ask_together, requests=share, begins_at=doors.opens_at) for hand, share in crowds
        ]:
            answers.add(asked.result())
        # Before the connections end: closing 20,000 of them is work that no buyer waited for.
        own = sum(hand.ask(time.process_time) for hand, _ in crowds) - own
        cpu_seconds = used(before, crew.read(), generator=own)
        for hand, _ in crowds:
            hand.ask(go_home)
    return replace(result(answers, goods=doors.goods, begins_at=doors.opens_at), cpu_seconds=cpu_seconds)


def result(answers: Answers, *, goods: Goods | None, begins_at: float) -> Spike:
    """Return what became of everybody; of `goods` also when the last decision was in the books."""
    statuses = answers.statuses()
    decided_at, decided = _last_decision(goods) if goods else (begins_at, 0)
    return Spike(
        waits_ms={status: sorted(answers.waits_ms(status)) for status in statuses},
        statuses=statuses,
        shed=answers.shed,
        silent=answers.silent,
        last_decision_seconds=decided_at - begins_at,
        decided=decided,
    )


def _last_decision(goods: Goods) -> tuple[float, int]:
    """Return when the last order was decided (s since 1970) and how many there are, once nothing moves any more."""
    client, deadline = connect(), time.monotonic() + MAX_SECONDS
    before: Sequence[int | None] = ()
    while time.monotonic() < deadline:
        seen = reading.figures(client, goods.sku, sale_id=goods.sale_id)
        now = () if seen is None else (seen.admitted, seen.decided, seen.available)
        if now and now == before and (seen is None or not seen.available):
            break
        before = now
        time.sleep(CALM_SECONDS)
    with connection.cursor() as cursor:
        cursor.execute(LAST_DECISION, [goods.sale_id])
        at, decided = cursor.fetchone()
    if not decided:
        raise LoadFailed("nothing was decided in the spike")
    return float(at), int(decided)
