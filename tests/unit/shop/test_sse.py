"""A reader that does not read is dropped, keeps nobody waiting and costs one message; no store is needed for that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shop.gate import broadcaster, sse
from shop.gate.broadcaster import Followers
from shop.gate.subscriber import Follower, seen_of

Message = MutableMapping[str, Any]


def follower(*, name: str = "", request_id: str = "1-a") -> Follower:
    card = SimpleNamespace(sku="sku", operator_state="on", pause_reason="")
    entry: Any = SimpleNamespace(card=card, figures=None, moves=0, changes=0)
    return Follower(entry, request_id=request_id, buyer="b", name=name)


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def run(each: Follower, send: Callable[[Message], Awaitable[None]]) -> None:
    async with asyncio.timeout(10):
        await sse.stream(each, never, send)


def test_a_reader_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "SLOW_SECONDS", 0.05)
    sent: list[Message] = []

    async def stuck(message: Message) -> None:
        sent.append(message)
        if len(sent) > 1:
            await asyncio.Event().wait()

    each = follower()
    each.put({"state": "queued"}, ends=False)
    asyncio.run(run(each, stuck))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


def test_who_reads_slowly_gets_the_newest_message_only() -> None:
    sent: list[bytes] = []

    async def slow(message: Message) -> None:
        sent.append(message.get("body", b""))
        if len(sent) == 2:
            for position in (3, 2, 1):
                each.put({"position": position}, ends=position == 1)

    each = follower()
    each.put({"position": 4}, ends=False)
    asyncio.run(run(each, slow))
    assert [b'"position": 1' in body for body in sent[2:]] == [True, False]
    assert not any(b'"position": 2' in body or b'"position": 3' in body for body in sent)


def test_the_same_state_is_told_once_and_not_to_who_has_it() -> None:
    each = follower()
    each.put({"state": "queued", "server_time": "1"}, ends=False)
    assert each.take()
    each.put({"state": "queued", "server_time": "2"}, ends=False)
    assert each.take() is None
    again = follower(name=each.name)
    again.put({"state": "queued", "server_time": "3"}, ends=False)
    assert again.take() is None
    again.put({"state": "held", "server_time": "3"}, ends=False)
    assert again.take()


def test_who_could_be_decided_is_looked_at_before_its_time() -> None:
    each = follower()
    each.position = 3
    each.looked(100.0, seen=seen_of(each.entry), pause_seconds=5)
    each.entry.moves += 1
    each.entry.figures = SimpleNamespace(decided=2)
    assert not each.wants_look(101.0)
    each.entry.figures = SimpleNamespace(decided=3)
    assert each.wants_look(101.0)
    assert each.wants_look(105.0)
    each.entry.moves -= 1
    assert not each.wants_look(105.0)


class Line:
    """Stands for board and line: notes who was asked for, and lets one of them come to its turn meanwhile."""

    def __init__(self, waiting: list[Follower], *, turn_of: Follower) -> None:
        self.asked: list[str] = []
        self.all = Followers(cast(Any, self), cast(Any, self))
        self._turn_of = turn_of
        for each in (*waiting, turn_of):
            self.all.add(each)

    def watch(self, told: Callable[[Any], None]) -> None:
        self.told = told

    async def places(self, _sku: str, request_ids: Sequence[str]) -> list[Any]:
        if not self.asked:
            self._turn_of.entry.figures = SimpleNamespace(decided=self._turn_of.position)
            self._turn_of.entry.moves += 1
        self.asked += request_ids
        return [SimpleNamespace()] * len(request_ids)

    def answer_of(self, _entry: Any, _request_id: str, _place: Any) -> dict[str, Any]:
        return {"state": "queued", "position": 9, "poll_after_ms": 60_000}


async def asked_before_the_turn(line: Line, *, all_of: int) -> int:
    """Return for how many the line was asked before it was for the one whose turn had come."""
    line.all.start()
    async with asyncio.timeout(30):
        while len(line.asked) < all_of:
            await asyncio.sleep(0.01)
    await line.all.stop()
    assert len(set(line.asked)) == all_of, "somebody was left out"
    return line.asked.index("1-turn")


@pytest.mark.parametrize("most_calm", [broadcaster.MAX_CALM, 10_000])
def test_who_may_be_decided_does_not_wait_behind_all_whose_place_moved(
    monkeypatch: pytest.MonkeyPatch, most_calm: int
) -> None:
    monkeypatch.setattr(broadcaster, "MAX_CALM", most_calm)
    monkeypatch.setattr(broadcaster, "REST_SECONDS", 0.0)
    waiting = [follower(request_id=f"1-{number}") for number in range(600)]
    turn_of = follower(request_id="1-turn")
    turn_of.position = 7
    turn_of.looked(time.monotonic(), seen=seen_of(turn_of.entry), pause_seconds=60)

    async def run_it() -> int:
        return await asked_before_the_turn(Line(waiting, turn_of=turn_of), all_of=601)

    before = asyncio.run(run_it())
    assert before == (broadcaster.MAX_CALM if most_calm < len(waiting) else len(waiting))
