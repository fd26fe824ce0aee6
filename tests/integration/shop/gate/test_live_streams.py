"""Many live streams on one web process: one subscription, few calls, news for all of them, purchases alongside them.
Uses real servers; the readers are a process of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from inventory.redis import keys
from loadtest.bench.load.arrivals import allow_connections
from loadtest.bench.streams.readers import reading
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support import road
from tests.support.http_calls import Caller
from tests.support.waiting import TRIES, wait_until
from workers.embedded.child_process import ChildProcess

MakeSale = Callable[..., SaleCard]
STREAMS = 300


@pytest.fixture
def waiting_card(web: Caller, shown_sale: MakeSale) -> SaleCard:
    """A sale of one unit, which somebody holds, as the web process knows; with room for a crowd that waits."""
    card = shown_sale(units=1, line_capacity=10 * STREAMS)
    road.queue(card, "holder-0000000000000000")
    road.settle_line(card)
    # Among a thousand sales of other tests its next look at the stock is a second away: that would be news to all.
    wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").json()["held"] == 1, what="the hold is shown")
    return card


def join(web: Caller, card: SaleCard, people: int) -> list[tuple[str, str]]:
    """Let people ask; return each one's stream and token."""
    buyers = [web.new_buyer() for _ in range(people)]
    return [(web.ask(card.slug, buyer).json()["events_url"], buyer.token) for buyer in buyers]


def wait_until_at_rest(web: Caller, path: str, token: str) -> None:
    """Return when the board has seen the hold, and the catalogue when it ends: from then on nothing changes."""

    def settled_down() -> bool:
        status = web.get(path.removesuffix("/events"), headers={"Authorization": f"Bearer {token}"}).json()
        return status["holds_ahead"] == 1 and status["next_lapse_at"] is not None

    wait_until(settled_down, what="the line has come to rest")


def subscribers() -> int:
    ((_, count),) = (road.run(("PUBSUB", "NUMSUB", keys.settled_channel()))[0],)
    return int(count)


def status_calls() -> int:
    """Return how many scripts Redis has run so far."""
    (stats,) = road.run(("INFO", "commandstats"))
    return sum(int(stats[name]["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)


def test_three_hundred_streams_hear_of_every_move_and_purchases_go_on(web: Caller, waiting_card: SaleCard) -> None:
    allow_connections(wanted=4 * STREAMS)
    streams = join(web, waiting_card, STREAMS)
    before = subscribers()
    with reading(web.port, streams) as counts:
        assert subscribers() <= before  # those of earlier processes may have gone meanwhile
        assert counts.messages.value >= STREAMS
        known = counts.messages.value
        sale_control.restock(waiting_card.slug, units=1, actor="test", reason="one more box")
        road.settle_line(waiting_card)
        # The first is told that it is theirs, everybody behind that their place is one better.
        wait_until(lambda: counts.messages.value >= known + STREAMS, what="all heard the news")
        for _ in range(20):
            assert web.ask(waiting_card.slug, web.new_buyer()).status == 202
        assert counts.closed.value <= 1


def test_streams_that_rest_cost_redis_next_to_nothing(web: Caller, waiting_card: SaleCard) -> None:
    streams = join(web, waiting_card, STREAMS)
    wait_until_at_rest(web, *streams[0])
    with reading(web.port, streams) as counts:
        assert any(rests_for_three_seconds(counts) for _ in range(TRIES))


def rests_for_three_seconds(counts: Any) -> bool:
    """Say whether for three seconds nobody is told anything, and Redis is asked next to nothing.

    One call for each stream and second is what polling would cost. At first news of the last ones may be under way.
    """
    known, before = counts.messages.value, status_calls()
    time.sleep(3)
    return counts.messages.value == known and status_calls() - before < STREAMS


def follow(web: Caller, path: str, headers: dict[str, str]) -> Iterator[str]:
    with web.follow(path, headers=headers) as (_, lines):
        yield from lines


def first_id(lines: Iterator[str]) -> str:
    return next(line.removeprefix("id: ") for line in lines if line.startswith("id: "))


def test_a_reader_who_comes_back_is_told_only_what_is_new(web: Caller, waiting_card: SaleCard) -> None:
    ((path, token),) = join(web, waiting_card, 1)
    headers = {"Authorization": f"Bearer {token}"}
    wait_until_at_rest(web, path, token)
    name = first_id(follow(web, path, headers))
    resumed = follow(web, path, {**headers, "Last-Event-ID": name})
    assert next(resumed).startswith("retry: ")
    # Nothing is new: the next thing that comes is the heartbeat.
    assert next(line for line in resumed if line) == ": still here"
    assert first_id(follow(web, path, {**headers, "Last-Event-ID": "of-another-state"})) == name


def test_a_decision_comes_at_once(web: Caller, shown_sale: MakeSale, start_settler: Callable[[], ChildProcess]) -> None:
    card, buyer = shown_sale(units=1), web.new_buyer()
    asked: dict[str, Any] = web.ask(card.slug, buyer).json()
    lines = follow(web, asked["events_url"], buyer.headers)
    first_id(lines)
    start_settler()
    assert any('"state": "held"' in line for line in lines)
