"""Opens a sale to a crowd that waits for it: every buyer asks in the same instant, each over a connection.
Never counts a wait from later than that instant.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from django.conf import settings

from inventory.line import reading
from inventory.redis import connect
from loadtest.bench.harness.fixtures import Fixture
from loadtest.bench.harness.machine import Crew, Stolen, one_row, used
from loadtest.bench.load.arrivals import Answers, allow_connections, ask_together, go_home, stand_ready
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import fresh_payloads
from loadtest.bench.load.subprocesses import Hand, ask_all, hands_of

ADMITTED, REFUSED = 202, 409
RETRY_SECONDS = 1.0  # as Retry-After of a 503 says
# From the moment a crowd stands ready to the opening of its sale: web knows the sale by then.
LEAD_SECONDS = 4.0
CALM_SECONDS = 0.5  # nobody was admitted and nothing decided for so long: it is over
MAX_SECONDS = 60.0
LAST_DECISION = "SELECT extract(epoch FROM max(decided_at)), count(*) FROM shop_order WHERE sale_id = %s"


@dataclass(frozen=True, kw_only=True)
class Spike:
    """Waits in ms from the instant; last_decision_seconds: from the instant to the last decision in PostgreSQL.

    statuses: how many buyers had each as their last answer; shed: 503 that were sent again.
    cpu_seconds: what each part used, from the opening to the last answer; stolen: share of the machine's time that its
    host gave to others meanwhile.
    """

    waits_ms: Mapping[int, list[float]]
    statuses: Mapping[int, int]
    shed: int
    silent: int
    last_decision_seconds: float = 0.0
    decided: int = 0
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    stolen: float = 0.0

    @property
    def failures(self) -> int:
        """Buyers who were told neither a place nor sold out in the end."""
        return self.silent + sum(count for status, count in self.statuses.items() if status not in (ADMITTED, REFUSED))


def measure_spike(
    slug: str, *, port: int, buyers: int, generators: int, crew: Crew, open_sale: Callable[[], Fixture | None]
) -> Spike:
    """Let `buyers` ask for `slug` from `generators` processes at the moment at which it opens.

    open_sale: called when every connection is open; returns the sale, which opens LEAD_SECONDS later, or None: nothing
    is sold. Raises LoadFailed.
    """
    payloads = fresh_payloads(slug, port=port, count=buyers)
    shares = [payloads[number::generators] for number in range(generators)]
    names = [f"crowd {number}" for number in range(generators)]
    answers, cores = Answers(), os.sched_getaffinity(0)
    with hands_of(names, redis_url=settings.REDIS_URL, load=allow_connections, cores=cores) as hands:
        crowds = list(hands.values())
        ready = [{"port": port, "buyers": len(share), "retry_seconds": RETRY_SECONDS} for share in shares]
        ask_all(crowds, stand_ready, ready)
        fixture = open_sale()
        opens_at = fixture.opens_at.timestamp() if fixture else time.time() + LEAD_SECONDS
        before, own, stolen = crew.read(), _own_seconds(crowds), Stolen()
        asked = [{"requests": share, "begins_at": opens_at} for share in shares]
        for told in ask_all(crowds, ask_together, asked):
            answers.add(told)
        # Before the connections end: closing 20,000 of them is work that no buyer waited for.
        own = _own_seconds(crowds) - own
        cpu_seconds, share = used(before, crew.read(), generator=own), stolen.share()
        for hand in crowds:
            hand.ask(go_home)
    return _result(answers, fixture, opens_at=opens_at, cpu_seconds=cpu_seconds, stolen=share)


def _own_seconds(crowds: Sequence[Hand]) -> float:
    return sum(hand.ask(time.process_time) for hand in crowds)


def _result(
    answers: Answers, fixture: Fixture | None, *, opens_at: float, cpu_seconds: Mapping[str, float], stolen: float
) -> Spike:
    """Return what became of everybody, once the last decision is in the books."""
    statuses = answers.statuses()
    decided_at, decided = _last_decision(fixture) if fixture else (opens_at, 0)
    return Spike(
        waits_ms={status: sorted(answers.waits_ms(status)) for status in statuses},
        statuses=statuses,
        shed=answers.shed,
        silent=answers.silent,
        last_decision_seconds=decided_at - opens_at,
        decided=decided,
        cpu_seconds=cpu_seconds,
        stolen=stolen,
    )


def _last_decision(fixture: Fixture) -> tuple[float, int]:
    """Return when the last order was decided (s since 1970) and how many there are, once nothing moves any more."""
    client, deadline = connect(), time.monotonic() + MAX_SECONDS
    before: Sequence[int | None] = ()
    while time.monotonic() < deadline:
        seen = reading.figures(client, fixture.sku, sale_id=fixture.sale_id)
        now = () if seen is None else (seen.admitted, seen.decided, seen.available)
        if seen is not None and not seen.available and now == before:
            break
        before = now
        time.sleep(CALM_SECONDS)
    at, decided = one_row(LAST_DECISION, fixture.sale_id)
    if not decided:
        raise LoadFailed("nothing was decided in the spike")
    return float(at), int(decided)
