"""What each of the demo's visitors does with a place in line, by a shop that answers from a script."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loadtest import visitors
from loadtest.plan.population import CANCELS, LAPSES, PAYS
from loadtest.visitors import VisitedShop, Visitors, visit


class Script(VisitedShop):
    """A shop that answers each look with the next of `states`, and remembers what was called."""

    def __init__(self, *states: str) -> None:
        super().__init__("http://127.0.0.1:1")
        self.states = list(states)
        self.calls: list[str] = []
        self.sales: list[dict[str, str]] = []

    def call(self, method: str, path: str, *, token: str = "", body: str | None = None, person: str = "") -> Any:
        self.calls.append(f"{method} {path.rsplit('/', 1)[1]}")
        if path.endswith("/sales"):
            return self.sales
        if path.endswith("/buyers"):
            return {"token": "a"}
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"request_id": "r", "state": state, "poll_after_ms": 250}


@pytest.mark.parametrize(("choice", "last"), [(PAYS, "POST payment"), (CANCELS, "POST cancel"), (LAPSES, "GET r")])
def test_a_unit_is_paid_for_given_back_or_forgotten(choice: str, last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "WITH_A_UNIT", [choice])
    shop = Script("queued", "waitlisted", "held")
    pauses = list(visit(shop, "kite-drop", dice=random.Random(1)))
    assert shop.calls[:4] == ["POST buyers", "POST requests", "GET r", "GET r"]
    assert shop.calls[-1] == last
    assert all(pause >= visitors.MIN_POLL_SECONDS for pause in pauses)


def test_somebody_loses_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "SHARE_THAT_LEAVES", 1.0)
    shop = Script("waitlisted")
    assert sum(visit(shop, "kite-drop", dice=random.Random(1))) < 100
    assert shop.calls[-1] == "POST cancel"


def test_who_is_not_let_in_goes_home() -> None:
    shop = Script("sold_out")
    assert list(visit(shop, "kite-drop", dice=random.Random(1))) == []
    assert shop.calls == ["POST buyers", "POST requests"]


def test_each_sale_is_visited_once_by_so_many_and_not_before_it_opens() -> None:
    shop, now = Script("sold_out"), 1000.0
    row = {"state": "scheduled", "opens_at": "2026-01-01T00:01:00+00:00", "server_time": "2026-01-01T00:00:00+00:00"}
    shop.sales = [
        {"slug": "print-1-drop", **row},
        {"slug": "kite-drop", **row},
        {"slug": "print-0-drop", "state": "closed"},
    ]
    crowd = Visitors(shop, people=7, prefix="print-", dice=random.Random(1))
    crowd.look(now)
    crowd.look(now)
    shop.calls.clear()
    assert crowd.step(now) >= 60
    assert shop.calls == []
    while crowd.step(now + 60 + visitors.MAX_SECONDS) == 0.0:
        pass
    assert shop.calls.count("POST requests") == 7


def test_a_seed_says_what_each_does_whoever_comes_first() -> None:
    """The control is another seed."""

    def done(seed: int, step: int) -> dict[int, str]:
        shop = Script("held")
        shop.sales = [
            {"slug": "kite-drop", "state": "open", **dict.fromkeys(("opens_at", "server_time"), "2026-01-01")}
        ]
        crowd = Visitors(shop, people=20, prefix="", dice=random.Random(seed))
        crowd.look(0.0)
        ends = {}
        for _, number, person in sorted(crowd._next)[::step]:
            list(person)
            ends[number] = shop.calls[-1]
        return ends

    assert done(34, 1) == done(34, -1)
    assert done(34, 1) != done(35, 1)
