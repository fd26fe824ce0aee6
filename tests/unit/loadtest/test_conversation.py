"""A buyer asks again as long as it makes sense: through a pause of the sale, not for ever. The clock is made up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from loadtest.checker import latency
from loadtest.checker.buyer_record import BuyerRecord
from loadtest.plan.population import Visit, Wish
from loadtest.record.history import Operation
from loadtest.users import conversation
from loadtest.users.calls import Answer, fill_in
from loadtest.users.conversation import MAX_TRIES, NS, Conversation
from loadtest.users.order_life import PATIENCE_SECONDS

RETRY_SECONDS = 5
PAUSED, BUSY, ADMITTED = (425, "sale_not_open"), (503, "unavailable"), (202, "")


class Door:
    """Answers one call after the other as told, and keeps every call; time passes only while somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Iterator[tuple[int, str]]) -> None:
        self.now, self.asks, self._answers = 0.0, list[Operation](), answers
        monkeypatch.setattr(conversation, "now_ns", self._now_ns)
        monkeypatch.setattr(gevent, "sleep", self._wait)

    def _wait(self, seconds: float) -> None:
        self.now += seconds

    def _now_ns(self) -> int:
        return int((1 + self.now) * NS)

    def send(self, operation: Operation, *_: Any, **__: Any) -> Answer:
        operation.began_ns = operation.ended_ns = self._now_ns()
        status, code = next(self._answers)
        fill_in(operation, status=status, fields={"code": code, "request_id": "r1", "state": "queued"})
        self.asks.append(operation)
        return Answer({}, b"", {}, RETRY_SECONDS)

    def meet(self, *, hammers: bool = False) -> tuple[str, int]:
        """Let a buyer come who has a token already; return what the shop said last, and how often they asked."""
        crowd: Any = SimpleNamespace(
            counters=SimpleNamespace(attempts=0),
            keep_ticket=lambda *_, **__: None,
            remember_request=lambda *_, **__: None,
        )
        wish = Wish("drop", "key", 1, ())
        calls: Any = self
        Conversation(calls, crowd=crowd, visit=Visit(0, (wish,), hammers=hammers))._click(wish)
        return self.asks[-1].code, len(self.asks)


def then_admitted(answer: tuple[int, str], times: int) -> Iterator[tuple[int, str]]:
    """Yield an answer so many times, and then a place."""
    yield from repeat(answer, times)
    yield ADMITTED


def test_a_pause_of_a_minute_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch, then_admitted(PAUSED, 12))
    assert door.meet() == ("", 13)
    assert door.now == 60


def test_a_shop_that_is_busy_for_so_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what is no pause has its tries, as before."""
    assert Door(monkeypatch, then_admitted(BUSY, 12)).meet() == ("unavailable", MAX_TRIES)


def test_a_click_that_is_repeated_has_waited_since_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a record from before clicks were kept is read as it was."""
    no = (409, "limit_reached")
    for answer, wait in ((ADMITTED, latency.to_admission), (no, latency.to_refusal)):
        door = Door(monkeypatch, chain(repeat(BUSY, 3), [answer]))
        door.meet()
        record = BuyerRecord("drop", door.asks)
        assert (wait([record]).count, wait([record]).max_ms) == (1, 3 * RETRY_SECONDS * 1000)
        for ask in door.asks:
            ask.clicked_ns = 0
        assert wait([record]).max_ms == 0


def test_a_pause_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch, repeat(PAUSED))
    assert door.meet()[0] == "sale_not_open"
    assert PATIENCE_SECONDS < door.now <= PATIENCE_SECONDS + (MAX_TRIES + 1) * RETRY_SECONDS


def test_a_bot_does_not_wait_for_the_end_of_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Door(monkeypatch, then_admitted(PAUSED, 12)).meet(hammers=True) == ("sale_not_open", MAX_TRIES)
