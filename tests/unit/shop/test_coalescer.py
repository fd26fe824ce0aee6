"""Everybody who asks in the same instant travels in one call, in order, one call at a time; nobody waits for ever.
Needs no server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.test import override_settings

from inventory.exceptions import FairdropError, RedisUnavailable, Unavailable
from shop.gate.purchase import Purchases
from shop.gate.server.coalescer import Coalescer
from shop.gate.server.rates import Rates
from shop.replies import Head, LateAnswers


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test to its end, which comes at once or never."""

    @wraps(test)
    def run(*args: Any, **values: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **values), timeout=60))

    return run


class Line:
    """A call that waits for its gate, answers each number with its tenfold, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.under_way = self.max_under_way = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: list[BaseException] = []

    async def call(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        self.under_way += 1
        self.max_under_way = max(self.max_under_way, self.under_way)
        await self.gate.wait()
        self.under_way -= 1
        if self.errors:
            raise self.errors.pop(0)
        return [item * 10 for item in items]


class Asked:
    """A coalescer whose callers wait for a future each."""

    def __init__(
        self, call: Callable[[Sequence[int]], Awaitable[Sequence[int]]], *, max_per_call: int, max_waiting: int
    ) -> None:
        async def call_with_numbers(items: Sequence[tuple[int, asyncio.Future[int]]]) -> Sequence[int]:
            return await call([number for number, _ in items])

        self.coalescer: Coalescer[tuple[int, asyncio.Future[int]], int] = Coalescer(
            call_with_numbers, self._deliver, max_per_call=max_per_call, max_waiting=max_waiting
        )
        self.told: list[int | FairdropError] = []
        self.refuses_to_hear: set[int] = set()

    def submit(self, number: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.coalescer.submit((number, future))
        return future

    def _deliver(self, item: tuple[int, asyncio.Future[int]], reply: int | FairdropError) -> None:
        number, future = item
        self.told.append(reply)
        if number in self.refuses_to_hear and not isinstance(reply, FairdropError):
            raise KeyError("ours")
        if future.done():
            return
        if isinstance(reply, FairdropError):
            future.set_exception(reply)
        else:
            future.set_result(reply)


def coalescer(
    call: Callable[[Sequence[int]], Awaitable[Sequence[int]]], *, max_per_call: int = 100, max_waiting: int = 100
) -> Asked:
    return Asked(call, max_per_call=max_per_call, max_waiting=max_waiting)


async def until_called(line: Line, *, calls: int = 1) -> None:
    """Let the loop run until `line` has been called so often."""
    while len(line.calls) < calls:
        await asyncio.sleep(0)


async def outcome(future: asyncio.Future[int]) -> int | type[FairdropError]:
    """Return the reply, or the kind of error that came instead."""
    try:
        return await future
    except FairdropError as error:
        return type(error)


@in_a_loop
async def test_one_instant_is_one_call() -> None:
    line = Line()
    asked = coalescer(line.call)
    futures = [asked.submit(number) for number in range(50)]
    assert await asyncio.gather(*futures) == [number * 10 for number in range(50)]
    assert line.calls == [list(range(50))]


@in_a_loop
async def test_what_arrives_meanwhile_goes_with_the_next_call() -> None:
    line = Line()
    line.gate.clear()
    asked = coalescer(line.call)
    first = asked.submit(1)
    await until_called(line)
    rest = [asked.submit(number) for number in (2, 3, 4)]
    line.gate.set()
    assert await asyncio.gather(first, *rest) == [10, 20, 30, 40]
    assert line.calls == [[1], [2, 3, 4]]


@in_a_loop
async def test_only_one_call_is_under_way() -> None:
    line = Line()
    asked = coalescer(line.call, max_per_call=3)
    await asyncio.gather(*(asked.submit(number) for number in range(10)))
    assert line.calls == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert line.max_under_way == 1


@in_a_loop
async def test_one_too_many_is_refused_at_once_and_the_others_are_served() -> None:
    line = Line()
    line.gate.clear()
    asked = coalescer(line.call, max_waiting=2)
    under_way = asked.submit(0)
    await until_called(line)
    assert not asked.coalescer.is_full
    waiting = [asked.submit(number) for number in (1, 2)]
    assert asked.coalescer.is_full
    with pytest.raises(Unavailable) as refused:
        asked.submit(3)
    assert refused.value.retry_after_seconds == 1
    line.gate.set()
    assert await asyncio.gather(under_way, *waiting) == [0, 10, 20]


class Sent:
    """A reply that keeps what it was sent."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def send(self, head: Head, body: bytes, own_id: bytes = b"") -> None:
        self.codes.append(json.loads(body)["code"])


@in_a_loop
async def test_while_too_many_wait_a_purchase_is_refused_before_its_token_and_body_are_read() -> None:
    entry, ask = cast(Any, SimpleNamespace(card=SimpleNamespace(sale_id=1))), cast(Any, None)
    sent, origin, no_token, no_json = Sent(), ("192.0.2.1", "192.0.2"), {b"host": b"shop"}, b"{"
    with override_settings(GATE_MAX_WAITING=1):
        purchases = Purchases(cast(Any, None), cast(Any, None), LateAnswers(), rates=Rates(0, 0))
        waiting = purchases._coalescer(entry)
    purchases.handle(sent, (entry, origin), no_token, no_json)
    waiting.submit(ask)  # nothing is called before the loop goes on
    purchases.handle(sent, (entry, origin), no_token, no_json)
    waiting._waiting.remove(ask)
    purchases.handle(sent, (entry, origin), no_token, no_json)
    await purchases.stop()
    # The control: before and after, the token is what is missed.
    assert sent.codes == ["unauthenticated", "unavailable", "unauthenticated"]


@in_a_loop
async def test_a_failed_call_fails_everybody_who_waits() -> None:
    line = Line()
    line.gate.clear()
    line.errors = [RedisUnavailable()]
    asked = coalescer(line.call, max_per_call=1)
    under_way = asked.submit(0)
    await until_called(line)
    behind = [asked.submit(number) for number in (1, 2)]
    line.gate.set()
    assert [await outcome(each) for each in (under_way, *behind)] == [RedisUnavailable] * 3
    assert line.calls == [[0]]


@in_a_loop
async def test_after_a_failed_call_the_next_one_is_tried() -> None:
    line = Line()
    line.errors = [RedisUnavailable()]
    asked = coalescer(line.call)
    assert await outcome(asked.submit(1)) is RedisUnavailable
    assert await outcome(asked.submit(2)) == 20


@in_a_loop
async def test_a_mistake_of_ours_is_reported_and_answered_as_unavailable() -> None:
    line, reported = Line(), []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    mistake = KeyError("ours")
    line.errors = [mistake]
    asked = coalescer(line.call, max_per_call=1)
    futures = [asked.submit(number) for number in (1, 2)]
    assert [await outcome(each) for each in futures] == [Unavailable, 20]
    assert reported == [mistake]


@in_a_loop
async def test_a_waiter_who_left_takes_nobody_along() -> None:
    line = Line()
    line.gate.clear()
    asked = coalescer(line.call)
    futures = [asked.submit(number) for number in (1, 2, 3)]
    await until_called(line)
    futures[1].cancel()
    line.gate.set()
    assert await asyncio.gather(futures[0], futures[2]) == [10, 30]
    assert futures[1].cancelled()


@in_a_loop
async def test_a_call_that_fails_after_a_waiter_left_tells_the_others() -> None:
    line = Line()
    line.gate.clear()
    line.errors = [RedisUnavailable()]
    asked = coalescer(line.call)
    futures = [asked.submit(number) for number in (1, 2)]
    await until_called(line)
    futures[0].cancel()
    line.gate.set()
    assert await outcome(futures[1]) is RedisUnavailable


@in_a_loop
async def test_a_call_that_answers_too_few_leaves_nobody_waiting() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)

    async def forgetful(items: Sequence[int]) -> list[int]:
        return [item * 10 for item in items[:-1]]

    asked = coalescer(forgetful)
    futures = [asked.submit(number) for number in (1, 2, 3)]
    await asyncio.wait(futures, timeout=60)
    assert [each for each in futures if not each.done()] == []


@in_a_loop
async def test_a_mistake_in_telling_one_takes_nobody_along() -> None:
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    asked = coalescer(Line().call)
    asked.refuses_to_hear = {2}
    futures = [asked.submit(number) for number in (1, 2, 3)]
    assert [await outcome(each) for each in futures] == [10, Unavailable, 30]
    assert [type(each) for each in reported] == [KeyError]


@in_a_loop
async def test_it_finishes_when_everybody_was_told() -> None:
    line = Line()
    line.gate.clear()
    asked = coalescer(line.call, max_per_call=1)
    futures = [asked.submit(number) for number in (1, 2)]
    await until_called(line)
    finish = asyncio.ensure_future(asked.coalescer.finish())
    await asyncio.sleep(0.01)
    assert not finish.done()  # the control: somebody waits
    line.gate.set()
    await finish
    assert [future.result() for future in futures] == [10, 20]
