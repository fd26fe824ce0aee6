"""Every kind of drift is made by hand, found by its name, mended or told to a person; a second run changes nothing.
Works on one SKU a test, as `manage.py reconcile --sale` does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from inventory import ledger, redis
from inventory.line import reading, writing
from inventory.records import Record
from inventory.redis import keys
from inventory.states import State
from shop.models import Order, Sale
from shop.orders import holds
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.road import answer_batch
from tests.support.shopkeeping import assert_books_balance, close_sale, fill_line, make_sale, pay, rewrite
from workers.management.commands.reconcile import run
from workers.reconciler.books import SkuOnSale
from workers.reconciler.loop import Reconciler

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale of four units, two of them held, one paid, one expired, and three who wait in line."""
    card = make_sale(new_sku(), units=3)
    names = fill_line(card, buyers=4)
    road.settle_line(card)
    pay(names[0])
    holds.cancel(names[1], buyer="buyer-0000001")
    road.settle_line(card)
    road.queue(card, "late-1", "late-2", "late-3")
    return card


def id_of(card: SaleCard, buyer: str) -> str:
    return road.ask(card, buyer).request_id


def held(card: SaleCard) -> str:
    """Return a request that is held."""
    return Order.objects.filter(sale_id=card.sale_id, state="held").order_by("id")[0].request_id


def reconcile(card: SaleCard, *, repair: bool = True) -> list[tuple[str, str, str]]:
    """Reconcile one SKU; return (kind, name, done) of each difference."""
    report = run(sale=card.slug, repair=repair)
    return [(each["kind"], each["name"], each["done"]) for each in report["drifts"]]


def assert_mended(card: SaleCard, *want: tuple[str, str], before: dict[str, Any]) -> None:
    """Fail unless a dry run finds `want` and changes nothing, a run mends it, and the next finds and changes nothing.

    before: the snapshot of the time when nothing was wrong.
    """
    drifted = road.snapshot(card)
    assert drifted != before, "the control: the drift made by hand is one"
    assert sorted(reconcile(card, repair=False)) == sorted((kind, name, "found") for kind, name in want)
    assert road.snapshot(card) == drifted
    assert sorted(reconcile(card)) == sorted((kind, name, "repaired") for kind, name in want)
    assert road.snapshot(card) == before
    assert reconcile(card) == []
    assert road.snapshot(card) == before
    assert_books_balance(card)


def assert_alarmed(card: SaleCard, kind: str, name: str, *, changed: bool = False) -> None:
    """Fail unless every run names the difference and leaves everything as it is."""
    before = road.snapshot(card)
    for _ in range(2):
        assert (kind, name, "alarm") in reconcile(card)
        assert road.snapshot(card) == before


def test_a_sound_sale_is_left_alone(card: SaleCard) -> None:
    before = road.snapshot(card)
    assert reconcile(card) == []
    assert road.snapshot(card) == before
    assert_books_balance(card)


def test_an_order_that_redis_does_not_know_is_told(card: SaleCard) -> None:
    """As after an emptied Redis: the COMMIT came when it was primed already."""
    before, name = road.snapshot(card), held(card)
    buyer = Order.objects.get(request_id=name).buyer
    live = writing.live_field(sale_id=card.sale_id, buyer=buyer)
    road.run(
        ("HDEL", keys.records(card.sku), name),
        ("HDEL", keys.live_units(card.sku), live),
    )
    assert_mended(card, ("unknown_order", name), before=before)


@pytest.mark.parametrize("state", [State.PAID, State.CANCELLED, State.SOLD_OUT])
def test_a_record_that_is_behind_its_order_is_told(card: SaleCard, state: State, new_sku: Callable[[], str]) -> None:
    if state is State.SOLD_OUT:
        close_sale(card)
        road.settle_line(card)
    name = Order.objects.filter(sale_id=card.sale_id, state=state).first().request_id
    before = road.snapshot(card)
    record = dict(before[keys.records(card.sku)])[name]
    road.run(("HSET", keys.records(card.sku), name, "q" + record[1:]))
    if state is not State.PAID:
        field = writing.live_field(sale_id=card.sale_id, buyer=record.split("|")[4])
        ended = before[keys.ended_requests(card.sku)]
        ended[field] = str(int(ended[field]) + 1)
        road.run(("HINCRBY", keys.live_units(card.sku), field, 1))
    assert_mended(card, ("record_behind", name), before=before)


def test_a_request_that_is_nowhere_is_put_back_at_its_own_place(card: SaleCard) -> None:
    before, name = road.snapshot(card), id_of(card, "late-1")
    record = before[keys.records(card.sku)][name]
    road.run(("ZREM", keys.line(card.sku), name))
    before[keys.records(card.sku)][name] = f"{record}|r"
    assert_mended(card, ("lost", name), before=before)
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place is not None
    assert place.position == 1 + len(road.run(("ZRANGE", keys.line(card.sku), 0, f"({place.record.seq}", "BYSCORE"))[0])
    assert place.record.restored


def test_a_request_put_back_may_be_decided_after_later_ones(card: SaleCard) -> None:
    """I8 knows of it: its order says that its place was lost and brought back."""
    name = id_of(card, "late-1")
    road.run(("ZREM", keys.line(card.sku), name))
    Sale.objects.filter(pk=card.sale_id).update(operator_state="closed")
    road.settle_line(card)
    assert not Order.objects.filter(request_id=name).exists()
    assert ("lost", name, "repaired") in reconcile(card)
    road.settle_line(card)
    assert Order.objects.get(request_id=name).restored
    assert_books_balance(card)
    assert reconcile(card) == []


def test_a_dead_letter_that_was_set_aside_is_not_lost(card: SaleCard) -> None:
    name = id_of(card, "late-1")
    road.run(
        ("ZADD", keys.dead_letters(card.sku), 1, name),
        ("ZREM", keys.line(card.sku), name),
        ("HINCRBY", keys.stock(card.sku), "aside", 1),
        ("HINCRBY", keys.stock(card.sku), "queued", -1),
    )
    before = road.snapshot(card)
    assert reconcile(card) == []
    assert road.snapshot(card) == before


def test_what_a_settler_has_in_its_hands_is_left_to_it(card: SaleCard) -> None:
    """Committed, and not answered yet: the next holder of the lock answers it, and nobody else need."""
    with transaction.atomic(), connection.cursor() as cursor:
        ledger.load_stock(cursor, sku=card.sku, units=2, actor="test", reason="second delivery")
    lock = road.held_lock(card.sku)
    handed = road.take(lock, probe=True)
    assert handed.requests
    with road.own_connection() as own:
        settlement = road.settle_batch(own, sku=card.sku, fence=lock.fence, requests=handed.requests)
    before = road.snapshot(card)
    assert reconcile(card) == []
    assert road.snapshot(card) == before
    answer_batch(redis.connect(), card.sku, token=lock.token, call=1, **settlement._asdict())
    lock.release()
    assert reconcile(card) == []
    assert_books_balance(card)


@pytest.mark.parametrize(
    ("letter", "state"),
    [("h", "held"), ("p", "paid"), ("s", "sold_out"), ("r", "refused"), ("e", "expired"), ("c", "cancelled")],
)
def test_a_record_that_claims_what_no_order_says_is_an_alarm(card: SaleCard, letter: str, state: str) -> None:
    """I19: somebody was told an outcome that was never committed."""
    name = id_of(card, "late-1")
    text = Record(State(state), 5, 1, card.sale_id, "late-1", 9_999_999_999_999 if letter == "h" else None).text()
    road.run(("HSET", keys.records(card.sku), name, text), ("ZREM", keys.line(card.sku), name))
    road.run(("HINCRBY", keys.stock(card.sku), "queued", -1), ("HINCRBY", keys.stock(card.sku), "decided", 1))
    if letter not in "hp":
        field = writing.live_field(sale_id=card.sale_id, buyer="late-1")
        road.run(("HDEL", keys.live_units(card.sku), field))
    assert_alarmed(card, "record_ahead", name)


def test_a_record_with_another_outcome_or_other_terms_than_its_order_is_an_alarm(card: SaleCard) -> None:
    name = Order.objects.get(sale_id=card.sale_id, state="cancelled").request_id
    record = road.snapshot(card)[keys.records(card.sku)][name]
    road.run(("HSET", keys.records(card.sku), name, "s" + record[1:]))
    assert_alarmed(card, "record_ahead", name)
    road.run(("HSET", keys.records(card.sku), name, record.replace("buyer-0000001", "somebody-else")))
    assert_alarmed(card, "record_differs", name)


def test_a_damaged_record_and_a_place_without_one_are_alarms(card: SaleCard) -> None:
    paid = Order.objects.get(sale_id=card.sale_id, state="paid").request_id
    road.run(("HSET", keys.records(card.sku), paid, "gibberish"))
    assert_alarmed(card, "record_damaged", paid)
    waits = id_of(card, "late-2")
    road.run(("HDEL", keys.records(card.sku), waits))
    assert_alarmed(card, "placed_unknown", waits)


@pytest.mark.parametrize(("was", "field"), [(1, "late-1"), (0, "late-2"), (5, "nobody")])
def test_live_units_are_counted_anew(card: SaleCard, was: int, field: str) -> None:
    before = road.snapshot(card)
    name = writing.live_field(sale_id=card.sale_id, buyer=field)
    if was:
        road.run(("HINCRBY", keys.live_units(card.sku), name, was))
    else:
        road.run(("HDEL", keys.live_units(card.sku), name))
    assert_mended(card, ("live_units", name), before=before)


def test_the_units_in_line_are_counted_anew(card: SaleCard) -> None:
    before = road.snapshot(card)
    road.run(("HINCRBY", keys.stock(card.sku), "queued", 7))
    assert_mended(card, ("queued_units", "queued"), before=before)


def test_units_are_left_alone_while_anything_moves(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A buyer who comes between the two looks makes the sums of the first worthless."""
    name = writing.live_field(sale_id=card.sale_id, buyer="late-1")
    road.run(("HINCRBY", keys.live_units(card.sku), name, 1))
    # Only what the reconciler calls `time`: other threads of this process sleep, too.
    between = SimpleNamespace(sleep=lambda _: road.queue(card, "in-between"), monotonic=time.monotonic)
    monkeypatch.setattr("workers.reconciler.loop.time", between)
    assert ("live_units", name, "left") in reconcile(card)
    monkeypatch.undo()
    assert ("live_units", name, "repaired") in reconcile(card)


def test_stock_that_redis_was_not_told_of_is_told(card: SaleCard) -> None:
    before = road.snapshot(card)
    with transaction.atomic(), connection.cursor() as cursor:
        ledger.load_stock(cursor, sku=card.sku, units=2, actor="test", reason="second delivery")
    version = int(before[keys.stock(card.sku)]["version"])
    want = {**before[keys.stock(card.sku)], "available": "2", "version": str(version + 1)}
    assert reconcile(card, repair=False) == [("stock_behind", card.sku, "found")]
    assert road.snapshot(card) == before
    assert reconcile(card) == [("stock_behind", card.sku, "repaired")]
    assert road.snapshot(card) == {**before, keys.stock(card.sku): want}
    assert reconcile(card) == []


def test_figures_that_were_changed_in_redis_are_set_right(card: SaleCard) -> None:
    before = road.snapshot(card)
    road.run(("HSET", keys.stock(card.sku), "available", 9))
    assert_mended(card, ("stock_differs", card.sku), before=before)


def test_stock_in_redis_newer_than_the_row_is_an_alarm(card: SaleCard) -> None:
    road.run(("HINCRBY", keys.stock(card.sku), "version", 50))
    assert_alarmed(card, "stock_ahead", card.sku)


def test_a_fence_below_the_rows_is_raised(card: SaleCard) -> None:
    row = Sale.objects.get(pk=card.sale_id).stock
    road.run(("SET", keys.fence(card.sku), row.fence - 5))
    assert reconcile(card) == [("fence_behind", card.sku, "repaired")]
    assert int(road.run(("GET", keys.fence(card.sku)))[0]) == row.fence
    assert reconcile(card) == []


def test_terms_that_redis_was_not_told_of_are_told(card: SaleCard) -> None:
    Sale.objects.filter(pk=card.sale_id).update(operator_state="paused")
    assert reconcile(card) == [("terms_behind", card.sku, "repaired")]
    assert road.run(("HGET", keys.sales(card.sku), card.sale_id))[0].startswith("paused|")
    assert reconcile(card) == []


def test_an_empty_redis_is_primed(new_sku: Callable[[], str]) -> None:
    # Long before it opens: a web process of another test would prime what is on sale sooner than we look.
    card = make_sale(new_sku(), units=3, opens_in_seconds=7200, closes_in_seconds=9000)
    road.forget(card)
    assert reconcile(card) == [("not_primed", card.sku, "repaired")]
    assert reconcile(card) == []
    assert_books_balance(card)


def test_books_that_disagree_are_an_alarm_and_stay_as_they_are(card: SaleCard) -> None:
    name = held(card)
    rewrite(name, state="expired")
    counts = Sale.objects.get(pk=card.sale_id).stock
    found = reconcile(card)
    assert ("books", card.sku, "alarm") in found
    assert ("unit", name, "alarm") in found
    after = Sale.objects.get(pk=card.sale_id).stock
    assert (after.available, after.held, after.sold, after.version) == (
        counts.available, counts.held, counts.sold, counts.version,
    )  # fmt: skip


def test_the_command_prints_what_it_found_and_fails_only_for_a_person(
    card: SaleCard, caplog: pytest.LogCaptureFixture
) -> None:
    road.run(("HINCRBY", keys.stock(card.sku), "queued", 7))
    out = StringIO()
    call_command("reconcile", sale=card.slug, json=True, dry_run=True, stdout=out)
    report = json.loads(out.getvalue())
    assert (report["ok"], report["skus"], report["counts"]) == (True, [card.sku], {"found": {"queued_units": 1}})
    call_command("reconcile", sale=card.slug, stdout=(out := StringIO()))
    assert "queued_units" in out.getvalue()
    assert "✓" in out.getvalue()
    road.run(("HINCRBY", keys.stock(card.sku), "version", 50))
    caplog.clear()
    with pytest.raises(CommandError):
        call_command("reconcile", sale=card.slug, stdout=StringIO())
    told = [record for record in caplog.records if record.name == "workers.reconciler.report"]
    (alarm,) = [record.msg for record in told if record.levelname == "ERROR"]
    assert (alarm["action"], alarm["kind"], alarm["name"]) == ("reconcile_alarm", "stock_ahead", card.sku)


def test_the_process_tells_an_alarm_once_and_mends_without_being_asked(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, paid = id_of(card, "late-1"), Order.objects.get(sale_id=card.sale_id, state="paid").request_id
    road.run(("ZREM", keys.line(card.sku), name), ("HSET", keys.records(card.sku), paid, "gibberish"))
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "workers.reconciler.loop.log_drifts", lambda drifts: told.extend((d.kind, d.name) for d in drifts)
    )
    monkeypatch.setattr("workers.reconciler.loop.skus_on_sale", lambda: {card.sku: SkuOnSale([card.sale_id], 0)})
    monkeypatch.setattr("workers.reconciler.loop.BUSY_SECONDS", 0)
    reconciler = Reconciler(redis.connect(), stopping=lambda: False)
    assert reconciler.work_once() >= 2
    assert {("lost", name), ("record_damaged", paid)} <= set(told)
    told.clear()
    assert reconciler.work_once() >= 1
    assert ("record_damaged", paid) not in told


def test_a_round_over_many_skus_lets_others_in_between(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sign of life, and what staff asked for, must not wait for the end of the round."""
    both = {card.sku: SkuOnSale([card.sale_id], 0), "sku-of-nobody": SkuOnSale([], 0)}
    monkeypatch.setattr("workers.reconciler.loop.skus_on_sale", lambda: both)
    between, compared = [], []
    monkeypatch.setattr(Reconciler, "steps", lambda _self, sku, **_more: compared.append(sku) or iter(()))
    reconciler = Reconciler(redis.connect(), stopping=lambda: False)
    reconciler.work_once(between_skus=lambda: between.append(len(compared)))
    assert compared == [card.sku, "sku-of-nobody"]
    assert between == [0, 1]
