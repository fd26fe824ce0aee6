"""Proves that a reply lost after its command ran changes nothing twice: what is sent again may be, COMMIT never is.
Each test asks the proxy whether it really lost the reply, and begins behind a control that shows what it would cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.conf import settings
from django.db import connections

from inventory import redis
from inventory.audit import line as audit_line
from inventory.exceptions import RedisUnavailable
from inventory.line import admission, reading, writing
from inventory.line.dead_letters import REASONS, change_letters
from inventory.locks.lock import Lock
from inventory.locks.statistics import STATISTICS, read_statistics
from inventory.redis import keys
from inventory.states import State
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.crashes.lossy_road import Road, digest
from tests.support.road import LOCK_TTL_MS, answer_batch, ask, own_connection, queue, settler
from tests.support.servers.proxy import Proxy, proxy_to
from tests.support.shopkeeping import assert_books_balance
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until
from workers.settlement import settle_batch

TOLD_SECONDS = 2 * settings.REDIS_TIMEOUT_SECONDS + 1
BUYERS = tuple(f"buyer-{number}" for number in range(10))


def counts(card: SaleCard) -> tuple[int, int, int, int]:
    """Return, of a SKU: in line, in flight, admitted, decided."""
    seen = audit_line.look(redis.connect(), card.sku)
    return seen.waiting, seen.in_flight, seen.admitted, seen.decided


def assert_told_in_time(call: Callable[[], object]) -> None:
    """Fail unless the caller hears of a silent Redis after two connections' silence at most."""

    def ask() -> None:
        with pytest.raises(RedisUnavailable):
            call()

    assert_waits_at_most(TOLD_SECONDS, lambda: seconds_of(ask))


def test_a_plain_command_is_done_twice_when_its_reply_is_lost(road: Road) -> None:
    """The control of them all: the client sends again, and Redis counts again."""
    key = f"{keys.stock(road.card.sku)}:counter"
    rule = road.proxy.drop_replies(b"INCR")
    assert road.client.incr(key) == 2
    assert rule.dropped == 1
    road.client.delete(key)


def test_take(road: Road) -> None:
    ids = queue(road.card, *BUYERS)
    with Lock(road.client, road.card.sku, ttl_ms=LOCK_TTL_MS) as lock:
        rule = road.proxy.drop_replies(digest("take"))
        handed = writing.take(road.client, road.card.sku, token=lock.token, call=1, batch=4)
        assert rule.dropped == 1
        assert (handed.kind, [name for name, _ in handed.requests]) == ("fresh", ids[:4])
    assert counts(road.card) == (6, 4, 10, 0)


def test_settle_and_take(road: Road) -> None:
    ids = queue(road.card, *BUYERS)
    sku = road.card.sku
    with own_connection() as connection, Lock(road.client, sku, ttl_ms=LOCK_TTL_MS) as lock:
        handed = writing.take(road.client, sku, token=lock.token, call=1, batch=4)
        done = settle_batch(connection, sku=sku, fence=lock.fence, requests=handed.requests)
        rule = road.proxy.drop_replies(b"Write what a COMMIT decided")
        handed = writing.settle_and_take(
            road.client, sku, token=lock.token, figures=done.figures, settled=done.settled, call=2, batch=4
        )
        assert rule.dropped == 1
        assert [name for name, _ in handed.requests] == ids[4:8]
    assert counts(road.card) == (2, 4, 10, 4)


def test_settle(road: Road) -> None:
    queue(road.card, *BUYERS)
    sku = road.card.sku
    with own_connection() as connection, Lock(road.client, sku, ttl_ms=LOCK_TTL_MS) as lock:
        handed = writing.take(road.client, sku, token=lock.token, call=1, batch=4)
        done = settle_batch(connection, sku=sku, fence=lock.fence, requests=handed.requests)
        rule = road.proxy.drop_replies(digest("settle"))
        answer_batch(road.client, sku, token=lock.token, call=1, figures=done.figures, settled=done.settled)
        assert rule.dropped == 1
    assert counts(road.card) == (6, 0, 10, 4)


def test_settle_and_release(road: Road) -> None:
    """Sent again, the answer would find the lock given back, and a turn that was done would seem lost."""
    queue(road.card, *BUYERS)
    sku = road.card.sku
    with own_connection() as connection:
        lock = Lock(road.client, sku, ttl_ms=LOCK_TTL_MS)
        assert lock.acquire()
        handed = writing.take(road.client, sku, token=lock.token, call=1, batch=4)
        done = settle_batch(connection, sku=sku, fence=lock.fence, requests=handed.requests)
        rule = road.proxy.drop_replies(b"Write what a COMMIT decided")
        with pytest.raises(RedisUnavailable):
            lock.release_after(writing.settle_call(sku, token=lock.token, call=1, **done._asdict()))
        assert rule.dropped == 1
        lock.release()
    assert not lock.lost.is_set()
    assert road.client.get(keys.lock(sku)) is None
    assert counts(road.card) == (6, 0, 10, 4)


def test_give_back(road: Road) -> None:
    ids = queue(road.card, *BUYERS)
    # More often than a request may be handed out: none of these counts.
    for _ in range(writing.MAX_HAND_OUTS + 2):
        with Lock(road.client, road.card.sku, ttl_ms=LOCK_TTL_MS) as lock:
            handed = writing.take(road.client, road.card.sku, token=lock.token, call=1, batch=4)
            assert [name for name, _ in handed.requests] == ids[:4]
            rule = road.proxy.drop_replies(digest("give_back"))
            writing.give_back(road.client, road.card.sku, token=lock.token)
            assert rule.dropped == 1
    assert audit_line.look(redis.connect(), road.card.sku).dead_letters == 0


def test_a_dead_letter(road: Road) -> None:
    """Who retries or discards one is told that there is no answer, and not that there was no such letter."""
    ids, sku = queue(road.card, *BUYERS[:3]), road.card.sku
    for _ in range(writing.MAX_HAND_OUTS + writing.REFUSAL_TRIES + 1):
        with Lock(road.client, sku, ttl_ms=LOCK_TTL_MS) as lock:
            writing.take(road.client, sku, token=lock.token, call=1, batch=1)
    rule = road.proxy.drop_replies(digest("dead_letter"))
    with pytest.raises(RedisUnavailable):
        change_letters(road.client, sku, ids[:1], mode="retry", actor="anna")
    assert rule.dropped == 1
    assert counts(road.card)[:2] == (2, 1)
    assert change_letters(road.client, sku, ids[:1], mode="retry", actor="anna")[0].reason == REASONS["unknown"]


def assert_admitted_once(road: Road, answers: list[admission.Answer]) -> None:
    """Fail unless everybody stands in the line once, with the seq that they were told."""
    assert [admission.state_of(answer.code) for answer in answers] == [State.QUEUED] * len(BUYERS)
    assert [answer.position for answer in answers] == list(range(1, len(BUYERS) + 1))
    assert counts(road.card) == (10, 0, 10, 0)
    told = {ask(road.card, buyer).request_id: answer.seq for buyer, answer in zip(BUYERS, answers, strict=True)}
    stored = redis.connect().zrange(keys.line(road.card.sku), 0, -1, withscores=True)
    assert told == {name: int(seq) for name, seq in stored}


def test_admit(road: Road) -> None:
    sale_line = admission.SaleLine(road.card.sale_id, road.card.sku)
    rule = road.proxy.drop_replies(digest("admit"))
    answers = admission.admit(road.client, sale_line, [ask(road.card, buyer) for buyer in BUYERS])
    assert rule.dropped == 1
    assert_admitted_once(road, answers)


def test_admit_async(road: Road) -> None:
    sale_line = admission.SaleLine(road.card.sale_id, road.card.sku)
    rule = road.proxy.drop_replies(digest("admit"))

    async def admit() -> list[admission.Answer]:
        client = redis.connect_async()
        try:
            return await admission.admit_async(client, sale_line, [ask(road.card, buyer) for buyer in BUYERS])
        finally:
            await redis.close_async(client)

    answers = asyncio.run(admit())
    assert rule.dropped == 1
    assert_admitted_once(road, answers)
    road.proxy.black_hole = True
    assert_told_in_time(lambda: asyncio.run(admit()))


def test_the_statistics_of_a_lock(road: Road) -> None:
    """They are not safe to send twice: they are sent once, and here they had arrived."""

    def attempts() -> int:
        return read_statistics(redis.connect(), road.card.sku).get("attempts", 0)

    rule = road.proxy.drop_replies(keys.lock_statistics(road.card.sku).encode())
    for wanted in (1, 2):
        with Lock(road.client, road.card.sku, ttl_ms=LOCK_TTL_MS):
            STATISTICS.flush()
            wait_until(lambda: attempts() >= wanted)  # noqa: B023 - asked at once
        assert (rule.dropped, attempts()) == (1, wanted)


@contextmanager
def database_through_proxy() -> Iterator[Proxy]:
    """Let this process reach its database through a proxy for the length of a block."""
    target = connections["default"].settings_dict
    port = target["PORT"]
    with proxy_to(int(port)) as proxy:
        connections["default"].close()
        target["PORT"] = proxy.port
        try:
            yield proxy
        finally:
            target["PORT"] = port


def test_commit_is_looked_up_and_never_done_again(road: Road) -> None:
    queue(road.card, *BUYERS)
    with Lock(road.client, road.card.sku, ttl_ms=LOCK_TTL_MS) as lock, database_through_proxy() as proxy:
        handed = writing.take(road.client, road.card.sku, token=lock.token, call=1, batch=10)
        rule = proxy.drop_replies(b"COMMIT")
        with own_connection() as connection, pytest.raises(psycopg.OperationalError):
            settle_batch(connection, sku=road.card.sku, fence=lock.fence, requests=handed.requests)
        assert rule.dropped == 1
        written = set(Order.objects.filter(sale_id=road.card.sale_id).values_list("pk", "decided_at"))
        assert len(written) == len(BUYERS)  # the control: it was committed, only nobody was told
        with own_connection() as connection:
            again = settle_batch(connection, sku=road.card.sku, fence=lock.fence, requests=handed.requests)
        connections["default"].close()
    assert {each.record.state for each in again.settled} == {State.HELD}
    assert set(Order.objects.filter(sale_id=road.card.sale_id).values_list("pk", "decided_at")) == written
    assert assert_books_balance(road.card)["units_held"] == len(BUYERS)


def test_a_settler_whose_commit_is_lost_decides_everybody_once(road: Road) -> None:
    queue(road.card, *BUYERS)
    with database_through_proxy() as proxy, settler(batch=4) as worker:
        rule = proxy.drop_replies(b"COMMIT", times=2)
        wait_until(lambda: worker.work_once() >= 0 and counts(road.card)[3] == len(BUYERS))
        connections["default"].close()
    assert rule.dropped == 2
    assert counts(road.card) == (0, 0, 10, 10)
    assert assert_books_balance(road.card)["orders_held"] == len(BUYERS)


def test_a_settler_whose_lock_has_no_answer_goes_on_with_that_lock(road: Road) -> None:
    """At its next turn, long before the lock ends by itself."""
    queue(road.card, *BUYERS)
    with settler(lock_ttl_ms=600_000) as worker:
        rule = road.proxy.drop_replies(digest("acquire"), times=10)
        with pytest.raises(RedisUnavailable):
            worker.work_once()
        rule.let_go()
        assert road.client.exists(keys.lock(road.card.sku))
        assert counts(road.card) == (10, 0, 10, 0)
        worker.work_once()
    assert counts(road.card) == (0, 0, 10, 10)
    assert not road.client.exists(keys.lock(road.card.sku))


def test_a_reset_is_survived_and_a_black_hole_is_told_in_time(road: Road) -> None:
    ids = queue(road.card, *BUYERS)
    road.proxy.reset_all()
    assert all(reading.places(road.client, road.card.sku, ids))
    road.proxy.delay_seconds = 0.05
    assert all(reading.places(road.client, road.card.sku, ids))
    road.proxy.black_hole = True
    assert_told_in_time(lambda: reading.places(road.client, road.card.sku, ids))
    road.proxy.black_hole = False
    assert all(reading.places(road.client, road.card.sku, ids))


def test_who_was_swallowed_by_a_black_hole_asks_again_and_stands_in_line_once(road: Road) -> None:
    sale_line, asks = admission.SaleLine(road.card.sale_id, road.card.sku), [ask(road.card, buyer) for buyer in BUYERS]
    road.proxy.black_hole = True
    assert_told_in_time(lambda: admission.admit(road.client, sale_line, asks))
    road.proxy.black_hole = False  # what it swallowed arrives now, late
    assert_admitted_once(road, admission.admit(road.client, sale_line, asks))
