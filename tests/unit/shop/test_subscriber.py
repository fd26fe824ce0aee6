"""A round over the open streams: what comes while it is under way is news, and nobody keeps the others from theirs.
No store is needed: the line and the database are stand-ins that answer, fail or hang as each test says.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inventory.exceptions import RedisUnavailable, RequestNotFound, Unavailable
from shop.gate import broadcaster, sse
from shop.gate import subscriber as follower_module
from shop.gate.broadcaster import MAX_CALM, MAX_PER_CALL, Followers
from shop.gate.sse import Streams
from shop.gate.subscriber import Follower, seen_of

SOON_SECONDS = 120.0  # before everybody is looked at anyway


def entry_of(sku: str = "sku") -> Any:
    card = SimpleNamespace(sku=sku, slug=sku, operator_state="on", pause_reason="")
    return SimpleNamespace(card=card, figures=SimpleNamespace(decided=0, sold=0), moves=0, changes=0)


def waiting(name: str, *, sku: str = "sku") -> Follower:
    return Follower(entry_of(sku), request_id=name, buyer="b")


def queued(position: int = 1) -> dict[str, Any]:
    return {"state": "queued", "position": position, "poll_after_ms": 60_000}


HELD = {"state": "held", "position": None, "poll_after_ms": 60_000}


class Shop:
    """Stands for the board, the line and the database. place: what the line says of a request."""

    def __init__(self, followers: Sequence[Follower] = ()) -> None:
        self.all = Followers(cast(Any, self), cast(Any, self))
        for each in followers:
            self.all.add(each)
        self.place: Callable[[str, str], Any] = lambda _sku, _name: queued()
        self.look_up: Callable[[], Awaitable[dict[str, Any]]] | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        self.calls = 0
        self.asked: Counter[str] = Counter()
        self.reads = 0

    def watch(self, _told: Callable[[Any], None]) -> None:
        pass

    async def places(self, sku: str, request_ids: Sequence[str]) -> list[Any]:
        self.calls += 1
        self.asked.update(request_ids)
        places = [self.place(sku, name) for name in request_ids]
        self.meanwhile()
        return places

    def answer_of(self, _entry: Any, _request_id: str, place: Any) -> Any:
        return place

    async def read(self, _request_id: str, *, buyer: str) -> dict[str, Any]:
        assert buyer == "b"
        self.reads += 1
        assert self.look_up is not None
        return await self.look_up()


def look_until(shop: Shop, happened: Callable[[], bool]) -> None:
    """Let the rounds go on until it happened."""

    async def look() -> None:
        shop.all.start()
        try:
            async with asyncio.timeout(SOON_SECONDS):
                while not happened():
                    await asyncio.sleep(0.001)
        finally:
            await shop.all.stop()

    asyncio.run(look())


def newest(each: Follower) -> dict[str, Any]:
    """Return what a follower's reader is sent next."""
    message = each.take()
    assert message is not None
    value: dict[str, Any] = json.loads(message.split(b"data: ")[1])
    return value


def decide(entry: Any) -> None:
    """Let the board take over that somebody was decided."""
    entry.moves += 1
    entry.changes += 1
    entry.figures = SimpleNamespace(decided=entry.figures.decided + 1, sold=entry.figures.sold + 1)


def test_a_decision_that_the_board_learns_while_places_are_read_is_told_at_once() -> None:
    each = waiting("1-a")
    shop = Shop([each])
    shop.place = lambda _sku, _name: HELD if shop.calls > 1 else queued(position=1)
    shop.meanwhile = lambda: decide(each.entry) if shop.calls == 1 else None
    look_until(shop, lambda: each.ended)
    assert newest(each)["state"] == "held"


def test_figures_that_the_board_learns_while_a_sale_is_told_are_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "SALE_SECONDS", 0.0)
    monkeypatch.setattr(follower_module, "MAX_SECONDS", 2 * SOON_SECONDS)
    monkeypatch.setattr(broadcaster, "REST_SECONDS", 0.05)
    monkeypatch.setattr(broadcaster, "sale_answer", lambda entry: {"state": "open", "sold": entry.figures.sold})
    entry = entry_of()
    all_of = [Follower(entry) for _ in range(3 * broadcaster.MAX_AT_A_TIME)]
    shop = Shop(all_of)
    last: dict[Follower, int] = {}

    def all_heard() -> bool:
        if entry.figures.sold == 0 and any(each.name for each in all_of):
            assert not all(each.name for each in all_of), "it was to come in the midst of the round"
            decide(entry)
        for each in all_of:
            if (message := each.take()) is not None:
                last[each] = json.loads(message.split(b"data: ")[1])["sold"]
        return list(last.values()) == [1] * len(all_of)

    look_until(shop, all_heard)


def test_a_decision_that_comes_while_a_stream_is_opened_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, shop, sent = entry_of(), Shop(), list[bytes]()
    monkeypatch.setattr(sse, "buyer_of", lambda _headers, *, unsafe: "b")
    shop.place = lambda _sku, _name: HELD

    async def status_of_before() -> dict[str, Any]:
        status = queued(position=1) | {"sale": "sku"}
        decide(entry)
        return status

    async def find(_request_id: str) -> Any:
        return entry

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message.get("body", b""))

    async def never() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def follow() -> None:
        door = Streams(cast(Any, shop), cast(Any, shop))
        door.start()
        async with asyncio.timeout(SOON_SECONDS):
            await door.follow_request("1-a", {"headers": []}, never, send)
        await door.stop()

    shop.look_up = status_of_before
    monkeypatch.setattr(shop, "entry_of", find, raising=False)
    asyncio.run(follow())
    assert [b'"queued"' in body or b'"held"' in body for body in sent].count(True) == 2


@pytest.mark.parametrize("dark", [1, broadcaster.MAX_SILENT + 3])
def test_skus_that_do_not_answer_keep_nobody_else_from_news(dark: int) -> None:
    lit = [waiting(f"1-{number}", sku=f"lit-{number}") for number in range(20)]
    shop = Shop([waiting(f"2-{number}", sku=f"dark-{number}") for number in range(dark)] + lit)

    def place(sku: str, _name: str) -> Any:
        if sku.startswith("dark"):
            raise RedisUnavailable
        return queued()

    shop.place = place
    look_until(shop, lambda: all(each.name for each in lit))


def test_skus_that_do_not_answer_are_not_all_waited_for_in_one_round() -> None:
    dark = [waiting(f"2-{number}", sku=f"dark-{number}") for number in range(8)]
    lit = waiting("1-a", sku="lit")
    shop = Shop([*dark, lit])

    def place(sku: str, _name: str) -> Any:
        if sku.startswith("dark"):
            raise RedisUnavailable
        return queued()

    shop.place = place
    look_until(shop, lambda: len(shop.asked) == 9)
    shop.asked.clear()
    lit.postpone(0.0)
    asyncio.run(shop.all._look())
    assert shop.asked.pop("1-a") == 1
    assert sum(shop.asked.values()) == broadcaster.MAX_SILENT


def test_nobody_waits_for_a_database_that_is_silent() -> None:
    forgotten = [waiting(f"forgotten-{number}") for number in range(2 * MAX_PER_CALL)]
    other = waiting("1-a")
    shop = Shop([*forgotten, other])
    shop.place = lambda _sku, name: queued() if name == "1-a" else None
    beats: list[Follower] = []

    async def silence() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def beat(each: Follower) -> None:
        each.spoken_at = time.monotonic() - 2 * broadcaster.HEARTBEAT_SECONDS
        await each.wait()
        beats.append(each)

    shop.look_up = silence
    tasks: list[asyncio.Task[None]] = []

    def all_beat() -> bool:
        if shop.reads and not tasks:
            tasks.extend(asyncio.get_running_loop().create_task(beat(each)) for each in forgotten)
        return bool(other.name) and len(beats) == len(forgotten)

    look_until(shop, all_beat)
    assert shop.reads == 1


def test_who_cannot_be_read_takes_nobodys_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "REST_SECONDS", 0.0)
    other = waiting("1-a")
    # Due a moment after all the others: they would be first in every round.
    other.looked(-60.0, seen=seen_of(other.entry), pause_seconds=60.001)
    shop = Shop([*(waiting(f"forgotten-{number}") for number in range(MAX_CALM + 50)), other])
    shop.place = lambda _sku, name: queued() if name == "1-a" else None

    async def fail() -> dict[str, Any]:
        raise Unavailable

    shop.look_up = fail
    look_until(shop, lambda: bool(other.name))
    assert shop.reads <= shop.calls, "it went on reading after the database had failed"


def test_what_the_line_forgot_is_read_and_told() -> None:
    known, unknown = waiting("known"), waiting("unknown")
    shop = Shop([known])
    shop.place = lambda _sku, _name: None

    async def held() -> dict[str, Any]:
        return HELD

    async def nothing() -> dict[str, Any]:
        raise RequestNotFound

    shop.look_up = held
    look_until(shop, lambda: known.ended)
    assert newest(known)["state"] == "held"
    shop = Shop([unknown])
    shop.place, shop.look_up = lambda _sku, _name: None, nothing
    look_until(shop, lambda: unknown.ended)
    assert unknown.take() is None
