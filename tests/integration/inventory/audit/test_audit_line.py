"""Each invariant between Redis and the database, broken on purpose in Redis, is named alone, with the request.
Real servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.test import override_settings

from inventory import redis
from inventory.audit import line, records
from inventory.audit.run import TAKE_OVER_MS
from inventory.records import Record, Ticket, read_record, sign_ticket
from inventory.redis import keys
from inventory.states import State
from shop.buyers import ticket_signer
from shop.orders import restoring
from shop.sales import priming
from shop.sales.audit import audit_sale
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support.road import ask, forget, held_lock, queue, rewrite_sale, run, settle_line, take
from tests.support.shopkeeping import fill_line, make_sale, pay
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale of three units: ann holds, cat has paid, one unit is free; eve waits, joe is in flight."""
    made = make_sale(new_sku(), units=3)
    _, cat = queue(made, "ann", "cat")
    settle_line(made)
    pay(cat)
    queue(made, "joe")
    lock = held_lock(made.sku)
    take(lock, batch=1)
    lock.release()
    queue(made, "eve")
    return made


def name_of(card: SaleCard, buyer: str) -> str:
    return ask(card, buyer).request_id


def broken(card: SaleCard, **how: Any) -> dict[str, str]:
    """Return what the audit finds broken, by id."""
    return {each["id"]: each["detail"] for each in audit_sale(card.slug, **how)["invariants"] if not each["ok"]}


def rewrite(card: SaleCard, who: str, **changes: Any) -> list[tuple[str | int, ...]]:
    """Return the command that changes the record of a buyer's request."""
    name = name_of(card, who)
    record = read_record(run(("HGET", keys.records(card.sku), name))[0])
    return [("HSET", keys.records(card.sku), name, record._replace(**changes).text())]


def without_trace(card: SaleCard, buyer: str) -> list[tuple[str | int, ...]]:
    name = name_of(card, buyer)
    forget_it = [("ZREM", keys.line(card.sku), name), ("HDEL", keys.records(card.sku), name)]
    return [*forget_it, ("HINCRBY", keys.stock(card.sku), "queued", -1)]


def out_of_line(card: SaleCard, buyer: str) -> list[tuple[str | int, ...]]:
    gone = ("ZREM", keys.line(card.sku), name_of(card, buyer))
    return [gone, ("HINCRBY", keys.stock(card.sku), "queued", -1), ordinals(card, 3)]


def ordinals(card: SaleCard, last: int) -> tuple[str | int, ...]:
    return ("HSET", keys.sales(card.sku), f"{card.sale_id}:ordinals", f"{last}|0|{run_id()}")


def run_id() -> str:
    return redis.connect().info("server")["run_id"]


Damage = Callable[[SaleCard], list[tuple[str | int, ...]]]
DAMAGE: dict[str, tuple[str, str, Damage]] = {
    "a request that vanished": ("I4", "2 of 3 decided", lambda card: without_trace(card, "eve")),
    "more orders than requests": ("I5b", "2 of 1", lambda card: [ordinals(card, 1)]),
    "a request decided for more units": ("I6", "ann", lambda card: rewrite(card, "ann", quantity=2)),
    "a request decided for another buyer": ("I6", "ann", lambda card: rewrite(card, "ann", buyer="joe")),
    "units queued that nobody asked for": (
        "I15",
        "3 units queued, 2 by the records",
        lambda card: [("HINCRBY", keys.stock(card.sku), "queued", 1)],
    ),
    "a request in line and in flight at once": (
        "I17",
        "1 are in both",
        lambda card: [("ZADD", keys.line(card.sku), 1, name_of(card, "joe"))],
    ),
    "one who is told to wait and waits nowhere": ("I18", "eve", lambda card: out_of_line(card, "eve")),
    "one who is told that a hold is over": ("I18", "ann", lambda card: rewrite(card, "ann", state=State.EXPIRED)),
    "one sent away who was never decided": ("I18", "eve", lambda card: rewrite(card, "eve", state=State.SOLD_OUT)),
    "a unit that Redis made up": (
        "I18",
        "in Redis",
        lambda card: [("HINCRBY", keys.stock(card.sku), "available", 1)],
    ),
    "a hold told before it was written": ("I19", "eve", lambda card: rewrite(card, "eve", state=State.HELD)),
    "a sale told that nobody paid": ("I19", "ann", lambda card: rewrite(card, "ann", state=State.PAID)),
}


def test_a_sale_under_way_is_clean(card: SaleCard) -> None:
    """The control of the controls."""
    report = audit_sale(card.slug)
    assert [each for each in report["invariants"] if not each["ok"]] == []
    names = ("queued", "waiting", "in_flight", "admitted", "decided", "waitlisted")
    assert [report["counts"][name] for name in names] == [2, 1, 1, 4, 2, 0]


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_in_redis_is_named(card: SaleCard, what: str) -> None:
    number, culprit, damage = DAMAGE[what]
    run(*damage(card))
    found = broken(card)
    assert list(found) == [number], found
    assert (name_of(card, culprit) if culprit in ("ann", "eve") else culprit) in found[number]


def test_a_redis_that_took_over_may_know_of_fewer_requests_until_the_next_ask(card: SaleCard) -> None:
    """The control is the damage above: the same count, by the server at which the sale was primed."""
    key, field = keys.sales(card.sku), f"{card.sale_id}:ordinals"
    run(("HSET", key, field, f"1|0|{run_id()[::-1]}"))
    (finding,) = (each for each in audit_sale(card.slug)["invariants"] if each["id"] == "I5b")
    assert finding["ok"]
    assert "2 of 1 asked; Redis was started again or replaced since" in finding["detail"]


def test_every_invariant_of_the_line_has_its_control() -> None:
    tried = {number for number, _, _ in DAMAGE.values()} | {"I21"}
    assert tried == {"I4", "I5b", "I6", "I15", "I17", "I18", "I19", "I21"}


def test_units_queued_at_rest_are_found(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    run(("HINCRBY", keys.stock(card.sku), "queued", 1))
    assert broken(card) == {"I15": "1 units queued at rest"}


@pytest.fixture(autouse=True)
def nobody_waits_too_long() -> Iterator[None]:
    """However slow the machine is, the audit calls nobody's wait too long unless a test says so."""
    with patience(600_000):
        yield


@contextmanager
def patience(ms: int) -> Iterator[None]:
    """Let the first in line wait for `ms` before the audit says so."""
    with override_settings(LOCK_TTL_MS=ms - TAKE_OVER_MS):
        yield


def test_who_waits_though_a_unit_is_free_is_found_once_it_lasts(card: SaleCard) -> None:
    with patience(60_000):
        assert broken(card) == {}
    with patience(50):
        found = wait_until(lambda: broken(card), what="the one who waits is found")
    assert list(found) == ["I21"]
    assert f"{name_of(card, 'joe')} waits for 1, 1 units are free" in found["I21"]


def test_in_a_paused_sale_one_may_wait(card: SaleCard) -> None:
    with patience(0):
        wait_until(lambda: broken(card))
        sale_control.pause(card.slug, actor="staff", reason="a storm")
        assert broken(card) == {}


@pytest.mark.parametrize(
    ("seconds_over", "is_ok", "waits_for"), [(-1, True, "paused"), (1, True, ""), (100, False, "")]
)
def test_nobody_waits_because_a_sale_was_paused_that_is_over(
    card: SaleCard, seconds_over: int, is_ok: bool, waits_for: str
) -> None:
    """Nor is one called old at once who could be decided only from then on."""
    sale_control.pause(card.slug, actor="staff", reason="a storm")
    now = line.look(redis.connect(), card.sku)
    fields, hour_later_us = now.sale.split("|"), now.now_us + 3_600_000_000
    fields[2] = str(hour_later_us - seconds_over * 1_000_000)
    look = now._replace(now_us=hour_later_us, sale="|".join(fields))
    books = {"available": 1, "held": 1, "decided_ms_ago": None, "freed_ms_ago": None}
    finding = line.first_waits(card.sku, look, books, patience_ms=60_000)
    assert (finding.ok, look.waits_for) == (is_ok, waits_for)
    assert f"the sale is {'closed' if seconds_over > 0 else 'paused'}" in finding.detail


def test_who_waits_for_a_held_unit_waits_for_nothing_once_the_sale_is_over(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    fill_line(card, buyers=2)
    settle_line(card)
    assert line.look(redis.connect(), card.sku).waits_for == "waitlist"
    rewrite_sale(card, closes_us=line.look(redis.connect(), card.sku).now_us)
    with patience(0):
        found = wait_until(lambda: broken(card))
    assert "its sale is over" in found["I21"]
    assert line.look(redis.connect(), card.sku).waits_for == ""


def test_after_a_loss_one_may_wait_until_tickets_had_time_to_come(card: SaleCard) -> None:
    """The control: once that time is over, who still waits is found."""
    with override_settings(RESTORE_GRACE_SECONDS=600.0), patience(0):
        forget(card)
        priming.prime_sale(card.slug)
        queue(card, "ida")
        assert line.look(redis.connect(), card.sku).waits_for == "tickets"
        assert broken(card) == {}
        run(("HINCRBY", keys.stock(card.sku), "decide_from_us", -600_000_000))
        assert list(wait_until(lambda: broken(card), what="the one who waits is found")) == ["I21"]


@pytest.mark.parametrize(("seconds", "is_ok"), [(59, True), (61, False)])
def test_after_a_loss_a_wait_begins_when_the_line_is_decided_again(card: SaleCard, seconds: int, is_ok: bool) -> None:
    """However long ago the place was given."""
    now = line.look(redis.connect(), card.sku)
    hour_later_us = now.now_us + 3_600_000_000
    look = now._replace(now_us=hour_later_us, decides_from_us=hour_later_us - seconds * 1_000_000)
    books = {"available": 1, "held": 1, "decided_ms_ago": None, "freed_ms_ago": None}
    assert line.first_waits(card.sku, look, books, patience_ms=60_000).ok is is_ok


def test_who_waits_for_a_unit_that_is_held_may_wait(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    names = fill_line(card, buyers=2)
    settle_line(card)
    with patience(0):
        assert broken(card) == {}
        pay(names[0])
        found = wait_until(lambda: broken(card), what="nothing can come back")
    assert list(found) == ["I21"]
    assert f"{names[1]} waits for 1, nothing can come back" in found["I21"]


def test_a_place_brought_back_is_not_called_old_at_once(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    wish = ask(card, "ann")
    ticket = Ticket(wish.request_id, "ann", 1, seq=10**15)
    _, restored = restoring.restore(sign_ticket(ticket_signer(), ticket), buyer="ann")
    assert restored
    with patience(60_000):
        assert broken(card) == {}
    with patience(50):
        assert list(wait_until(lambda: broken(card))) == ["I21"]
    settle_line(card)
    assert broken(card) == {}


def test_a_line_that_redis_lost_is_clean_before_and_after_it_is_primed_again(card: SaleCard) -> None:
    forget(card)
    assert broken(card) == {}
    priming.prime_sale(card.slug)
    assert broken(card) == {}


def test_records_are_compared_in_turn_when_they_are_many(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SAMPLE", 100)
    monkeypatch.setattr(records, "PAGE", 50)
    card = make_sale(new_sku(), units=1, line_capacity=2_000)
    names = fill_line(card, buyers=800)
    assert audit_sale(card.slug)["ok"]
    record = Record(State.HELD, seq=1, quantity=1, sale_id=card.sale_id, buyer="x")
    run(("HSET", keys.records(card.sku), names[400], record.text()))
    assert names[400] in broken(card, thorough=True)["I19"]
    looks = [broken(card).get("I19", "") for _ in range(20)]
    assert any(names[400] in detail for detail in looks)
    assert not all(looks)
    extent = next(each["detail"] for each in audit_sale(card.slug)["invariants"] if each["id"] == "I6")
    assert "records compared; the next call goes on behind them" in extent


def test_a_long_line_is_not_added_up(new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    card = make_sale(new_sku(), units=5)
    queue(card, "ann", "bob", "eve")
    assert line.look(redis.connect(), card.sku).units == 3
    monkeypatch.setattr(line, "MAX_ADDED_UP", 2)
    assert line.look(redis.connect(), card.sku).units == -1
