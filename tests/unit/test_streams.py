"""A reader that does not read is dropped, keeps nobody waiting and costs one message; no store is needed for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest

from shop.gate import streams
from shop.gate.followers import Follower

Message = MutableMapping[str, Any]


def follower(*, name: str = "") -> Follower:
    entry: Any = SimpleNamespace(card=SimpleNamespace(switch="on", pause_reason=""), figures=None, moves=0, changes=0)
    return Follower(entry, request_id="1-a", buyer="b", name=name)


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def run(each: Follower, send: Callable[[Message], Awaitable[None]]) -> None:
    async with asyncio.timeout(10):
        await streams.stream(each, never, send)


def test_a_reader_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SLOW_SECONDS", 0.05)
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
    each.looked(100.0, pause_seconds=5)
    each.entry.moves += 1
    each.entry.figures = SimpleNamespace(decided=2)
    assert not each.wants_look(101.0)
    each.entry.figures = SimpleNamespace(decided=3)
    assert each.wants_look(101.0)
    assert each.wants_look(105.0)
    each.entry.moves -= 1
    assert not each.wants_look(105.0)
