"""What the notary publishes of a sale holds by every rule of the independent verifier, whatever happens to the sale.
Real stores; the verifier reads the log through the shop's own addresses.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext, override_settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line import admitted, writing
from inventory.line.admission import Ask
from inventory.line.admitted import Admitted, Since, admitted_each
from inventory.records import Ticket
from inventory.redis import keys
from loadtest.verify.verify_sale import Replay
from shop.buyers import token_of
from shop.models import Order, Sale
from shop.orders import holds, personal_data
from shop.orders.restoring import restore
from shop.payments import refunds
from shop.salelog.changes import IN_ORDER, ORDERS, read_changes
from shop.salelog.models import SaleLog, Tile
from shop.salelog.publisher import MAX_RANGES, leaf_text
from shop.salelog.store import MAX_LEAF_BYTES
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from shop.staff import line_actions, retiring, sale_control
from shop.tickets.signing import sign_tickets
from tests.support import road
from tests.support.paying import begin, happen, hear
from tests.support.sale_logs import checked, get, leaves, publish, read_to, told, verifier_of
from tests.support.servers.shop_processes import running_process
from tests.support.shopkeeping import close_sale, fill_line, let_holds_end, make_sale, pay
from tests.support.waiting import wait_until
from workers.notary import Notary

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of two units, with room for some more in line."""
    return make_sale(new_sku(), units=2)


def expire(card: SaleCard, name: str) -> None:
    let_holds_end(name)
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.expire_due(cursor, sku=card.sku, request_ids=[name])
    holds.publish(changes)


def tickets_of(card: SaleCard, *buyers: str, quantity: int = 1) -> dict[str, str]:
    """Let each buyer ask for one unit; return their tickets. quantity: what these say."""
    asks = [road.ask(card, buyer) for buyer in buyers]
    found = zip(asks, road.admit(card, *asks), strict=True)
    places = [
        Ticket(ask.request_id, ask.buyer, quantity, each.seq, each.terms_version, each.ordinal) for ask, each in found
    ]
    return dict(zip(buyers, sign_tickets(places, slug=card.slug, request_key=card.request_id_key()), strict=True))


def test_a_sale_from_its_opening_to_its_end(card: SaleCard) -> None:
    first = road.queue(card, "ann", "bob", "eve", "dan", "fay")
    checked(card)
    assert [kind for kind, *_ in told(card)] == ["opened", *["admitted"] * 5]
    road.settle_line(card)
    pay(first[0])
    expire(card, first[1])
    road.settle_line(card)
    holds.cancel(first[3], buyer="dan")
    road.queue(card, "gus")
    pay(first[2])
    road.settle_line(card)
    close_sale(card)
    road.settle_line(card)
    verifier = checked(card)
    assert told(card)[6:] == [
        ("admitted",), ("decided", "held"), ("decided", "held"), ("ended", "paid"), ("ended", "expired"),
        ("decided", "held"), ("ended", "left"), ("ended", "paid"), ("decided", "sold_out"), ("decided", "sold_out"),
        ("act", "close", "none"), ("closed",),
    ]  # fmt: skip
    assert verifier.replay.counts["admitted"] == 6
    assert len({place["holder"] for place in verifier.replay.places.values()}) == 6


def test_a_log_opens_with_all_its_units_while_an_old_transaction_holds_reading_back(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading goes on from where nothing can be missing: so far an old transaction, of anybody, may hold it back."""
    monkeypatch.setattr("workers.notary.MAX_CHANGES", 2)
    with connection.copy().temporary_connection() as old:
        old.execute("BEGIN; SELECT pg_current_xact_id()")
        publish(is_held_back=True)
        for _ in range(8):
            make_sale(new_sku(), units=1)
        before = read_to()
        card = make_sale(new_sku(), units=2)
        road.queue(card, "ann", "bob")
        notary = publish(is_held_back=True)
        # A step that is full, and publishes nothing, looks further the next time, past what other tests have left.
        wait_until(lambda: publish(notary, is_held_back=True) and len(told(card)) == 3, what="the log is published")
        assert read_to() == before  # the control: it was held back
        assert told(card) == [("opened",), ("admitted",), ("admitted",)]
        old.execute("ROLLBACK")
    assert json.loads(leaves(card)[0])["units"] == 2
    checked(card)


def test_what_every_log_has_is_not_read_again(card: SaleCard) -> None:
    """So a step's limit is spent on what is new. The control: before it is published, it is read."""
    publish()

    def unread() -> list[int]:
        with connection.cursor() as cursor:
            changes, _, _ = read_changes(cursor, after=before, limit=1000)
        return [change.number for change in changes]

    before = SaleLog.objects.get(sale_id=card.sale_id).cursor
    road.queue(card, "ann", "bob")
    road.settle_line(card)
    assert len(unread()) == 2
    publish()
    assert unread() == []


@pytest.mark.parametrize("noted_every", [1, 10_000])
def test_a_notary_that_starts_does_not_read_again_since_a_sale_went_quiet(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, noted_every: int
) -> None:
    """But since a log forked. The control: as long as nothing was noted, the quiet log stands where it stood."""
    monkeypatch.setattr("workers.notary.NOTED_EVERY", noted_every)
    quiet, forked, busy = (make_sale(new_sku(), units=4) for _ in range(3))
    notary = publish()
    notary._forked.add(forked.sale_id)
    stood = read_to()
    road.queue(busy, "ann", "bob")
    road.settle_line(busy)
    publish(notary)
    stand = dict(SaleLog.objects.values_list("sale_id", "cursor"))
    assert stand[forked.sale_id] <= stood < read_to() == stand[busy.sale_id]
    assert (stand[quiet.sale_id] == read_to()) is (noted_every == 1)
    road.queue(quiet, "eve")
    road.settle_line(quiet)
    checked(quiet)
    checked(busy)
    assert told(quiet)[-2:] == [("admitted",), ("decided", "held")]


def test_the_history_is_not_sorted_for_its_newest_rows() -> None:
    """Whatever PostgreSQL knows of the tables, which is nothing in a flood. The control: it sorts when it must."""
    assert "Sort" not in plan_of_reading(IN_ORDER)
    assert "Sort" in plan_of_reading("SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off")


def plan_of_reading(settings: str) -> str:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(settings)
        cursor.execute(f"EXPLAIN {ORDERS}", {"after": 0, "limit": 1000})
        return "\n".join(line for (line,) in cursor.fetchall())


def test_nothing_happens_twice_and_nothing_changes_when_nothing_happened(card: SaleCard) -> None:
    road.queue(card, "ann", "bob")
    notary = publish()
    before = SaleLog.objects.filter(sale_id=card.sale_id).values().get()
    publish(notary)
    publish()
    assert SaleLog.objects.filter(sale_id=card.sale_id).values().get() == before


def test_a_late_payment_takes_the_unit_again(card: SaleCard) -> None:
    name, _ = road.queue(card, "ann", "bob")
    road.settle_line(card)
    payment = begin(name)
    expire(card, name)
    hear(happen(payment, "captured"))
    checked(card)
    assert told(card)[-2:] == [("ended", "expired"), ("ended", "retaken")]
    refunds.refund_order(name, actor="anna", reason="sent back")
    checked(card)
    assert told(card)[-1] == ("ended", "refunded")


def test_money_that_came_too_late_is_refunded_and_frees_nothing(card: SaleCard) -> None:
    names = road.queue(card, "ann", "bob", "eve")
    road.settle_line(card)
    payment = begin(names[0])
    expire(card, names[0])
    road.settle_line(card)
    hear(happen(payment, "captured"))
    checked(card)
    assert json.loads(leaves(card)[-1])["units"] == 0


def test_staff_acts_and_new_terms(card: SaleCard) -> None:
    road.queue(card, "ann")
    sale_control.pause(card.slug, actor="anna", reason="a look")
    sale_control.resume(card.slug, actor="anna")
    sale_control.change_terms(card.slug, actor="anna", price=Decimal("12.50"), per_buyer_limit=2)
    sale_control.restock(card.slug, units=3, actor="anna", reason="more came")
    sale_control.adjust(card.slug, units=-1, actor="anna", reason="one broke")
    road.queue(catalogue.find_sale(card.slug), "bob")
    road.settle_line(card)
    verifier = checked(card)
    acts = [leaf for leaf in told(card) if leaf[0] in ("act", "stock")]
    assert acts == [
        ("act", "pause", "given"), ("act", "resume", "none"), ("act", "terms", "none"), ("stock", "3", "loaded"),
        ("act", "restock", "given"), ("stock", "-1", "adjusted"), ("act", "adjust", "given"),
    ]  # fmt: skip
    assert verifier.replay.terms[2]["price"] == "12.50"
    assert b"anna" not in b"".join(leaves(card))
    assert b"broke" not in b"".join(leaves(card))


def test_terms_that_nobody_logged_are_published_all_the_same(card: SaleCard) -> None:
    publish()
    Sale.objects.filter(pk=card.sale_id).update(price=9)
    priming.prime_sale(card.slug)
    road.queue(card, "ann")
    assert checked(card).replay.terms[2]["price"] == "9.00"


def test_standby_is_named_and_held_to_its_order(new_sku: Callable[[], str]) -> None:
    """One that wants more than came back is passed over without a fault. The control: the two others exchanged."""
    card = make_sale(new_sku(), units=1, limit=2, line_capacity=0)
    first = road.queue(card, "ann")
    road.settle_line(card)
    pay(first[0])
    asks = [road.ask(card, "bob", quantity=2, standby=True)]
    asks += [road.ask(card, buyer, standby=True) for buyer in ("eve", "joe")]
    road.admit(card, *asks)
    publish()
    refunds.refund_order(first[0], actor="olga", reason="asked for")
    road.settle_line(card)
    verifier = checked(card)
    found = [json.loads(leaf) for leaf in leaves(card)]
    places = [leaf for leaf in found if leaf["kind"] == "admitted"]
    assert [leaf.get("standby", False) for leaf in places] == [False, True, True, True]
    assert [place["state"] for place in verifier.replay.places.values()] == ["refunded", "waits", "held", "waits"]
    replay = Replay()
    for leaf in found:
        name = leaf.get("request")
        other = {asks[1].request_id: asks[2].request_id}.get(name, name) if leaf["kind"] == "decided" else name
        changed = leaf | ({"request": other} if name else {})
        replay.add(json.dumps(changed, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    replay.finish(now_us=replay.at)
    assert [*replay.faults] == ["order"]


def make_unit_free_for_standby(sku: str, *, published: bool = True) -> tuple[SaleCard, str, Ask]:
    """Return a sale whose one unit was refunded after a publication, the request it was of, and the ask on standby.

    published: with their places; if not, the log has its opening alone.
    """
    card = make_sale(sku, units=1, line_capacity=0)
    publish()
    first = road.queue(card, "ann")
    road.settle_line(card)
    pay(first[0])
    bob = road.ask(card, "bob", standby=True)
    road.admit(card, bob)
    if published:
        publish()
    refunds.refund_order(first[0], actor="olga", reason="asked for")
    return card, first[0], bob


@pytest.mark.parametrize("changes_a_step", [1, 3000])
def test_a_place_that_was_given_after_one_on_standby_was_decided_stands_after_it(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, changes_a_step: int
) -> None:
    """The notary comes late, and reads both at once, or in steps. The control: the two leaves exchanged."""
    monkeypatch.setattr("workers.notary.MAX_CHANGES", changes_a_step)
    card, _, bob = make_unit_free_for_standby(new_sku())
    road.settle_line(card)
    sale_control.restock(card.slug, units=1, actor="olga")
    (new,) = road.queue(card, "new")
    verifier = checked(card)
    found = [json.loads(leaf) for leaf in leaves(card)]
    assert [leaf["request"] for leaf in found if "request" in leaf][-2:] == [bob.request_id, new]
    assert verifier.replay.places[new]["state"] == "waits"
    told_of = [leaf.get("request") for leaf in found]
    place = found.pop(told_of.index(new))
    found.insert(len(told_of) - 1 - told_of[::-1].index(bob.request_id), place)
    replay, at = Replay(), max(leaf["at"] for leaf in found)
    for n, leaf in enumerate(found):
        replay.add(json.dumps(leaf | {"n": n, "at": at}, sort_keys=True, separators=(",", ":")).encode())
    replay.finish(now_us=replay.at)
    assert [*replay.faults] == ["order"]


def test_one_on_standby_who_is_decided_after_a_loss_passes_over_nobody(new_sku: Callable[[], str]) -> None:
    """A settler had them in its hands when Redis lost its line; the next place was published before its COMMIT."""
    card, first, bob = make_unit_free_for_standby(new_sku())
    lock = road.held_lock(card.sku)
    with road.own_connection() as own:
        handed = road.take(lock)
        road.forget(card)
        priming.prime_sale(card.slug)
        (new,) = road.queue(card, "new")
        publish()
        road.settle_batch(own, sku=card.sku, fence=lock.fence, requests=handed.requests)
    verifier = checked(card)
    assert [json.loads(leaf).get("request") for leaf in leaves(card)[-3:]] == [new, first, bob.request_id]
    assert [verifier.replay.places[name]["state"] for name in (bob.request_id, new)] == ["held", "waits"]


def test_who_comes_on_standby_after_a_loss_passes_over_nobody_whose_place_was_lost(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1, line_capacity=0)
    first = road.queue(card, "ann")
    road.settle_line(card)
    pay(first[0])
    road.admit(card, road.ask(card, "bob", standby=True))
    publish()
    road.forget(card)
    priming.prime_sale(card.slug)
    road.admit(card, road.ask(card, "new", standby=True))
    publish()
    refunds.refund_order(first[0], actor="olga", reason="asked for")
    road.settle_line(card)
    assert [place["state"] for place in checked(card).replay.places.values()] == ["refunded", "late", "held"]


def sale_after(card: SaleCard) -> SaleCard:
    """Return a sale of the units that a sale which is over has left."""
    sale, slug = Sale.objects.get(pk=card.sale_id), f"{card.slug}-again"
    Sale.objects.create(
        slug=slug, product=sale.product, stock=sale.stock, title="Again", price=5,
        opens_at=sale.closes_at, closes_at=sale.closes_at + timedelta(days=365),
    )  # fmt: skip
    priming.prime_sale(slug)
    return catalogue.find_sale(slug)


def test_two_sales_of_one_sku_one_after_the_other(card: SaleCard) -> None:
    late, kept = road.queue(card, "ann", "bob")
    road.settle_line(card)
    pay(kept)
    close_sale(card)
    second = sale_after(card)
    (waits,) = road.queue(second, "eve")
    publish()
    expire(card, late)  # a unit of the first sale goes to the second one's line
    road.settle_line(second)
    pay(waits)
    checked(card)
    checked(second)
    assert ("stock", "1", "elsewhere") in told(second)
    refunds.refund_order(kept, actor="anna", reason="sent back")
    checked(card)
    checked(second)


def test_places_that_redis_lost_are_declared_and_come_back_by_their_tickets(card: SaleCard) -> None:
    tickets = tickets_of(card, "ann", "bob", "eve", "dan")
    publish()
    late_tickets = tickets_of(card, "gus")  # admitted, and not published before the loss
    road.forget(card)
    priming.prime_sale(card.slug)
    road.queue(card, "new")
    checked(card)
    for buyer in ("eve", "ann"):
        restore(tickets[buyer], buyer=buyer)
    restore(late_tickets["gus"], buyer="gus")
    road.settle_line(card)
    verifier = checked(card)
    assert ("recovered", "[[5, 1000000]]") in told(card)
    assert len(verifier.replay.restored) == 2
    close_sale(card)
    road.settle_line(card)
    assert len(checked(card).replay.restored) == 3
    assert verifier_of(card, tickets=[*tickets.values(), *late_tickets.values()]).replay.faults == {}


def test_the_place_of_each_ticket_is_in_the_log_or_declared_lost(card: SaleCard) -> None:
    tickets = tickets_of(card, "ann", "bob")
    publish()
    lost = tickets_of(card, "gus")  # admitted, and not published before the loss
    road.forget(card)
    priming.prime_sale(card.slug)
    again = tickets_of(card, "gus")  # asked for without the ticket: another place
    checked(card)
    verifier = verifier_of(card, tickets=[*tickets.values(), *lost.values(), *again.values()])
    verifier.replay.finish(now_us=verifier.replay.at + 3_600_000_000)
    missing = [ordinal for ordinal in verifier.replay.tickets if ordinal not in verifier.replay.given]
    assert (verifier.replay.faults, missing) == ({}, [3])
    assert verifier.replay.unjudged["ticket"] == ["your place 3 is declared lost"]
    (wrong,) = tickets_of(card, "gus", quantity=2).values()
    assert "ticket" in verifier_of(card, tickets=[wrong]).replay.faults  # the control: it says two units


def start_redis_again(card: SaleCard, *, last: int) -> None:
    """Let Redis look as if it was started again and lost nothing. last: the ordinal that it gave last."""
    road.run(("HSET", keys.sales(card.sku), f"{card.sale_id}:ordinals", f"{last}|0|abc"))
    priming.prime_sale(card.slug)


def test_a_redis_that_was_started_again_and_lost_nothing(card: SaleCard) -> None:
    names = road.queue(card, "ann", "bob", "eve")
    publish()
    start_redis_again(card, last=3)
    road.queue(card, "new")
    road.settle_line(card)
    pay(*names[:2])
    road.settle_line(card)
    verifier = checked(card)
    assert verifier.replay.ordinal == 1_000_001


def lost_in(card: SaleCard, *, given: int) -> int:
    """Return how many of the ordinals up to `given` a log has declared lost."""
    found = [each for leaf in map(json.loads, leaves(card)) for each in leaf.get("lost", [])]
    return sum(min(last, given) - first + 1 for first, last in found if first <= given)


def look_no_further(client: redis.Client, asked: Since) -> Admitted | None:
    """Stand in for a look at the whole line: the control."""
    return admitted_each(client, [asked])[0]


def at_once(*values: int, **options: int) -> int:
    """Stand in for `min` where a jump is declared as far as a decision needs it, so that all of it is: a control."""
    return values[0] if len(values) == 2 else min(*values, **options)


@pytest.mark.parametrize("whole", [True, False])
def test_a_line_longer_than_a_page_is_published_when_redis_was_started_again(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """None of them is lost, and who comes later is published. The control looks at the first page alone."""
    if not whole:
        monkeypatch.setattr("workers.notary.all_admitted", look_no_further)
    card = make_sale(new_sku(), units=1, line_capacity=3000)
    publish()
    fill_line(card, buyers=2500)
    start_redis_again(card, last=2500)
    (new,) = road.queue(card, "new")
    publish()
    told_of = [json.loads(leaf).get("request") for leaf in leaves(card)]
    assert (lost_in(card, given=2500), new in told_of) == ((0, True) if whole else (1500, False))
    if whole:
        assert len(checked(card).replay.places) == 2501


@pytest.mark.parametrize("all_decisions", [True, False])
def test_decisions_that_a_step_has_not_read_are_not_lost_when_redis_was_started_again(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch, all_decisions: bool
) -> None:
    """The control declares the whole jump at the first of them, and knows those of its step alone."""
    monkeypatch.setattr("workers.notary.MAX_CHANGES", 2)
    if not all_decisions:
        monkeypatch.setattr("shop.salelog.publisher.min", at_once, raising=False)
        monkeypatch.setattr("workers.notary._decided_after", lambda each: [])
    publish()
    sale_control.restock(card.slug, units=4, actor="anna")
    names = road.queue(card, *"abcdef")
    road.settle_line(card)
    start_redis_again(card, last=6)
    road.queue(card, "new")
    verifier = checked(card)
    assert ([*verifier.replay.places][:6] == names) is all_decisions
    assert lost_in(card, given=6) == (0 if all_decisions else 2)


@pytest.mark.parametrize("all_decisions", [True, False])
def test_one_who_was_decided_after_a_later_place_is_not_lost_when_redis_was_started_again(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, all_decisions: bool
) -> None:
    """On standby one was passed over, because two units did not come back at first. The control: as above."""
    monkeypatch.setattr("workers.notary.MAX_CHANGES", 2)
    if not all_decisions:
        monkeypatch.setattr("workers.notary._decided_after", lambda each: [])
    card = make_sale(new_sku(), units=1, limit=2, line_capacity=0)
    publish()
    (first,) = road.queue(card, "ann")
    road.settle_line(card)
    pay(first)
    road.admit(card, road.ask(card, "bob", quantity=2, standby=True), road.ask(card, "eve", standby=True))
    refunds.refund_order(first, actor="olga", reason="asked for")
    road.settle_line(card)
    sale_control.restock(card.slug, units=2, actor="olga")
    road.settle_line(card)
    start_redis_again(card, last=3)
    assert [place["state"] for place in checked(card).replay.places.values()].count("held") == 2
    assert lost_in(card, given=3) == (0 if all_decisions else 1)


def test_nothing_is_lost_while_the_whole_line_cannot_be_read(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis fails at the second page. The control: one that may be read is taken for all there is."""
    card, other = make_sale(new_sku(), units=1, line_capacity=3000), make_sale(new_sku(), units=1)
    publish()
    fill_line(card, buyers=1500)
    start_redis_again(card, last=1500)
    road.queue(other, "ann")
    real = admitted.run_script
    with monkeypatch.context() as away:
        calls: list[int] = []

        def fail_at_the_second(*args: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) % 2 == 0:
                raise RedisUnavailable
            return real(*args, **options)

        away.setattr(admitted, "run_script", fail_at_the_second)
        publish()
        assert len(calls) >= 2
        assert [kind for kind, *_ in told(other)] == ["opened", "admitted"]  # another sale goes on
        assert [kind for kind, *_ in told(card)] == ["opened"]
    assert len(checked(card).replay.places) == 1500
    assert lost_in(card, given=1500) == 0
    again = make_sale(new_sku(), units=1, line_capacity=3000)
    publish()
    fill_line(again, buyers=1500)
    start_redis_again(again, last=1500)
    monkeypatch.setattr("workers.notary.all_admitted", look_no_further)
    publish()
    assert lost_in(again, given=1500) == 500


def test_a_line_that_is_lost_while_it_is_read_is_not_taken_for_one_that_survived(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: read in one life of Redis, it is all there."""
    card = make_sale(new_sku(), units=1, line_capacity=3000)
    fill_line(card, buyers=1500)
    whole = admitted.all_admitted(redis.connect(), Since(card.sku, card.sale_id, 0))
    assert whole is not None
    assert (whole.is_whole, len(whole.requests)) == (True, 1500)
    real = admitted.run_script

    def lose_after(*args: Any, **options: Any) -> Any:
        answer = real(*args, **options)
        road.forget(card)
        priming.prime_sale(card.slug)
        return answer

    monkeypatch.setattr(admitted, "run_script", lose_after)
    assert admitted.all_admitted(redis.connect(), Since(card.sku, card.sale_id, 0)) is None


@pytest.mark.parametrize("ranges_a_leaf", [100, 1000])
def test_many_ranges_that_were_lost_are_declared_in_several_leaves_once(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, ranges_a_leaf: int
) -> None:
    """Every second place is lost. The control: in one leaf they are larger than it may be, and the log never grows."""
    monkeypatch.setattr("shop.salelog.store.MAX_LEAF_BYTES", 2000)
    monkeypatch.setattr("shop.salelog.publisher.MAX_RANGES", ranges_a_leaf)
    card = make_sale(new_sku(), units=1, line_capacity=1000)
    publish()
    gone = fill_line(card, buyers=500)[::2]
    road.run(("ZREM", keys.line(card.sku), *gone), ("HDEL", keys.records(card.sku), *gone))
    start_redis_again(card, last=500)
    road.queue(card, "new")
    if ranges_a_leaf == 1000:
        publish()
        assert told(card) == [("opened",)]
        return
    assert len(checked(card).replay.places) == 251
    size = SaleLog.objects.get(sale_id=card.sale_id).size
    publish()
    found = [json.loads(leaf) for leaf in leaves(card)]
    assert len(found) == size  # nothing is declared twice
    assert [len(leaf["lost"]) for leaf in found if leaf["kind"] == "recovered"] == [100, 100, 51]


def test_a_leaf_of_as_many_ranges_as_one_may_have_is_not_too_large() -> None:
    """The control: one of twice as many is."""
    lost = [[2**53 - 2, 2**53 - 1]] * MAX_RANGES
    sizes = [
        len(leaf_text({"kind": "recovered", "lost": lost * n, "restored": []}, index=2**53, at_us=2**53))
        for n in (1, 2)
    ]
    assert sizes[0] < MAX_LEAF_BYTES < sizes[1]


@pytest.mark.parametrize("whole_jump", [False, True])
def test_one_on_standby_who_was_decided_before_redis_was_started_again_passes_over_nobody(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, whole_jump: bool
) -> None:
    """The notary comes late: below a jump, too, a place that was given after that decision stands after it.

    The control publishes all below the jump before the first decision.
    """
    if whole_jump:
        monkeypatch.setattr("shop.salelog.publisher.min", at_once, raising=False)
    card, _, bob = make_unit_free_for_standby(new_sku(), published=False)
    road.settle_line(card)
    sale_control.restock(card.slug, units=1, actor="olga")
    (new,) = road.queue(card, "new")
    start_redis_again(card, last=3)
    publish()
    verifier = verifier_of(card)
    assert [*verifier.replay.faults] == (["order"] if whole_jump else [])
    assert [verifier.replay.places[name]["state"] for name in (bob.request_id, new)] == ["held", "waits"]


def test_a_dead_letter_that_is_put_back(card: SaleCard) -> None:
    first, second, third = road.queue(card, "ann", "bob", "eve")
    publish()
    client = redis.connect()
    redis.run_commands(client, [
        ("ZREM", keys.line(card.sku), first), ("ZADD", keys.dead_letters(card.sku), 1, first),
        ("ZADD", keys.aside(card.sku), Order.objects.count() + 1, first),
    ])  # fmt: skip
    road.settle_line(card)
    publish()
    assert "order" in verifier_of(card).replay.faults  # somebody was passed over, and nobody has said why yet
    line_actions.retry_letters(card.slug, letters=[first], actor="anna", reason="mended")
    pay(second)
    expire(card, third)
    road.settle_line(card)
    checked(card)
    assert [kind for kind, *_ in told(card)][-2:] == ["requeued", "decided"]


def test_a_dead_letter_that_is_refused(card: SaleCard) -> None:
    first, _ = road.queue(card, "ann", "bob")
    with road.own_connection() as own, road.Lock(redis.connect(), card.sku, ttl_ms=road.LOCK_TTL_MS) as lock:
        handed = road.take(lock)
        dead, alive = handed.requests
        for batch, is_dead in (([alive], False), ([dead], True)):
            settled = road.settle_batch(own, sku=card.sku, fence=lock.fence, requests=batch, dead=is_dead)
            writing.settle_and_take(redis.connect(), card.sku, token=lock.token, **settled._asdict(), call=2, batch=1)
    checked(card)
    assert ("decided", "refused", "dead_letter") in told(card)
    assert first


def test_a_request_over_the_limit(card: SaleCard) -> None:
    ask = road.request(card, "ann", seq=5)
    again = road.request(card, "ann", seq=6, key="again")
    numbered = [(name, record._replace(ordinal=n)) for n, (name, record) in enumerate((ask, again), start=1)]
    with road.own_connection() as own:
        road.settle_batch(own, sku=card.sku, fence=1, requests=numbered)
    checked(card)
    assert told(card)[-1] == ("decided", "refused", "limit_reached")


def test_an_ordinal_that_nobody_knows_is_declared_lost(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.notary.GAP_LOST_SECONDS", 3600.0)  # not before we say so
    gone, stays = road.queue(card, "ann", "bob")
    road.run(("ZREM", keys.line(card.sku), gone), ("HDEL", keys.records(card.sku), gone))
    notary = publish()
    assert told(card) == [("opened",)]
    monkeypatch.setattr("workers.notary.GAP_LOOK_SECONDS", 0.0)
    monkeypatch.setattr("workers.notary.GAP_LOST_SECONDS", 0.0)
    publish(notary)
    assert told(card)[1:] == [("recovered", "[[1, 1]]"), ("admitted",)]
    assert json.loads(leaves(card)[-1])["request"] == stays


def test_what_is_published_cannot_be_changed(card: SaleCard) -> None:
    road.queue(card, "ann")
    publish()
    tile = Tile.objects.get(sale_id=card.sale_id, level=0, number=0)
    tile.data = b"\0" * len(tile.data)
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        tile.save()
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        tile.delete()
    with pytest.raises(DatabaseError, match="only grows"), transaction.atomic():
        SaleLog.objects.filter(sale_id=card.sale_id).update(size=1)


def test_each_buyer_gets_the_proof_of_their_own_place(card: SaleCard) -> None:
    name, _ = road.queue(card, "a" * 22, "b" * 22)
    path = f"/api/v1/requests/{name}/proof"
    mine, other = ({"authorization": f"Bearer {token_of(who * 22)}"} for who in "ab")
    assert get(path, **mine).status_code == 404
    publish()
    proof = get(path, **mine).json()
    assert (json.loads(proof["leaf"])["request"], proof["index"], len(proof["path"])) == (name, 1, 2)
    assert get(path, **other).status_code == 404
    assert get(path).status_code == 401
    assert get("/api/v1/requests/nobody/proof", **mine).status_code == 404


def test_a_retired_sale_keeps_its_log(card: SaleCard) -> None:
    name, *_ = road.queue(card, "ann")
    publish()
    road.settle_line(card)
    pay(name)
    close_sale(card)
    retiring.retire(card.slug, actor="anna")
    checked(card)
    assert told(card)[-1] == ("act", "retire", "none")
    refunds.refund_order(name, actor="anna", reason="sent back")
    checked(card)
    assert told(card)[-1] == ("ended", "refunded")


def test_past_sales_cost_a_step_nothing_and_still_count(new_sku: Callable[[], str]) -> None:
    """One statement counts for all of them; a change of their own has what came and went meanwhile before it."""
    card = first = make_sale(new_sku(), units=9)
    refunded, costs = "", list[int]()
    for buyer in ("ann", "bob", "eve", "dan"):
        name, back = road.queue(card, buyer, f"{buyer}-2")
        road.settle_line(card)
        pay(name)
        expire(card, back)
        with CaptureQueriesContext(connection) as step:
            assert Notary(redis.connect()).work_once() > 0
        costs.append(len(step))
        refunded = refunded or name
        checked(card)
        close_sale(card)
        retiring.retire(card.slug, actor="anna")
        checked(card)
        card = sale_after(card)
    assert costs[1:] == [costs[1]] * 3
    assert set(SaleLog.objects.filter(sale__stock__sku=card.sku).values_list("units", flat=True)) == {0, -1, -2, -3}
    refunds.refund_order(refunded, actor="anna", reason="sent back")
    checked(first)
    assert told(first)[-2:] == [("stock", "-3", "elsewhere"), ("ended", "refunded")]


def test_what_a_step_read_whose_commit_failed_is_read_again(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next step reads less, by which all that the first one read has become visible."""
    card = make_sale(new_sku(), units=4)
    notary = publish()
    names = road.queue(card, "ann", "bob", "eve", "dan")
    road.settle_line(card)
    pay(*names)

    def fail(_point: str) -> None:
        raise DatabaseError("the connection broke")

    with monkeypatch.context() as broken:
        broken.setattr("workers.notary.fault_point", fail)
        broken.setattr("workers.notary.MAX_CHANGES", 2)
        with pytest.raises(DatabaseError, match="broke"):
            notary.work_once()
    publish(notary)
    assert verifier_of(card).replay.faults == {}
    assert [kind for kind, *_ in told(card)].count("ended") == 4


def test_a_database_that_refuses_the_tiles_does_not_end_the_notary(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop waits after an error of Django's. The tiles have a cursor of the driver's own, and errors of its own."""
    road.queue(card, "ann")
    notary = Notary(redis.connect())
    with monkeypatch.context() as broken:
        broken.setattr("shop.salelog.store.SAVE_TILES", "SELECT 1 / 0")
        with pytest.raises(DatabaseError, match="division by zero"):
            publish(notary)
    publish(notary)
    checked(card)


def retire_unread(card: SaleCard, *names: str) -> None:
    """Settle the line, pay for `names`, and retire the sale, while no notary works."""
    road.settle_line(card)
    pay(*names)
    close_sale(card)
    road.settle_line(card)
    assert retiring.retire(card.slug, actor="anna") == "retired"


def test_a_late_notary_publishes_all_of_a_sale_that_was_retired_meanwhile(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis lost a place that nobody brought back, and has forgotten the sale by now."""
    monkeypatch.setattr("workers.notary.GAP_LOST_SECONDS", 3600.0)  # not before it is retired
    kept, gone, stays = road.queue(card, "ann", "bob", "eve")
    road.run(("ZREM", keys.line(card.sku), gone), ("HDEL", keys.records(card.sku), gone))
    publish()
    assert told(card) == [("opened",), ("admitted",)]
    retire_unread(card, kept, stays)
    verifier = checked(card)
    assert told(card)[2:] == [
        ("recovered", "[[2, 2]]"), ("admitted",), ("decided", "held"), ("decided", "held"), ("ended", "paid"),
        ("ended", "paid"), ("act", "close", "none"), ("closed",), ("act", "retire", "none"),
    ]  # fmt: skip
    assert [*verifier.replay.places] == [kept, stays]
    assert SaleLog.objects.get(sale_id=card.sale_id).cursor <= read_to()  # nor does it keep the others back


def test_a_late_notary_declares_the_jump_of_a_retired_sale(card: SaleCard) -> None:
    """Redis was emptied, and one of two came back, before the sale was retired."""
    tickets = tickets_of(card, "ann", "bob")
    road.forget(card)
    priming.prime_sale(card.slug)
    restore(tickets["bob"], buyer="bob")
    (new,) = road.queue(card, "new")
    retire_unread(card, road.ask(card, "bob").request_id, new)
    verifier = checked(card)
    assert ("recovered", "[[1, 1], [3, 1000000]]") in told(card)
    assert (len(verifier.replay.places), len(verifier.replay.restored)) == (2, 1)


def test_a_late_notary_begins_the_log_of_a_sale_that_was_retired_meanwhile(card: SaleCard) -> None:
    """No notary worked from before it was made."""
    names = road.queue(card, "ann", "bob")
    retire_unread(card, *names)
    assert not SaleLog.objects.filter(sale_id=card.sale_id).exists()
    assert [*checked(card).replay.places] == names


def test_the_log_holds_when_a_buyer_is_forgotten(card: SaleCard) -> None:
    """While the sale runs, and once it is retired, when an id that says nothing stands for theirs."""
    buyer = f"ann-{card.sku}"
    name, other = road.queue(card, buyer, "bob")
    publish()
    personal_data.forget_buyer(buyer, actor="anna", reason="asked for it")
    road.settle_line(card)
    pay(name, other)
    kept = checked(card).kept
    personal_data.forget_buyer(buyer, actor="anna", reason="asked for it")
    close_sale(card)
    retiring.retire(card.slug, actor="anna")
    personal_data.forget_buyer(buyer, actor="anna", reason="asked for it")
    assert not Order.objects.filter(buyer=buyer).exists()  # the control: now the order names them no more
    checked(card)
    refunds.refund_order(name, actor="anna", reason="sent back")
    checked(card)
    assert told(card)[-1] == ("ended", "refunded")
    assert verifier_of(card, kept=kept).replay.faults == {}


def test_tiles_are_served_as_they_are_named(card: SaleCard) -> None:
    road.queue(card, *(f"buyer-{number}" for number in range(20)))
    publish()
    log = f"/api/v1/sales/{card.slug}/log"
    full = get(f"{log}/tile/0/000.p/21")
    assert (full.status_code, len(full.content)) == (200, 21 * 32)
    assert full["Cache-Control"] == "public, max-age=31536000, immutable"
    assert get(f"{log}/tile/0/000.p/7").content == full.content[: 7 * 32]
    assert get(f"{log}/checkpoint")["Cache-Control"] == "no-cache"
    for path in (
        "tile/0/000", "tile/0/000.p/22", "tile/0/000.p/0", "tile/0/001.p/1", "tile/1/000.p/1", "tile/entries/000",
        "tile/entries/00", "tile/0/x000/000", "tile/0/000.p/999", "tile/9/000", "tile/0/../../x", "tile/0/x1/000",
    ):  # fmt: skip
        assert get(f"{log}/{path}").status_code == 404, path
    assert get(f"/api/v1/sales/{card.slug}x/log/checkpoint").status_code == 404
    with override_settings(SALE_LOG=False):
        assert get("/.well-known/fairdrop-keys").status_code == 404


@pytest.mark.parametrize("place", ["before_checkpoint", "after_checkpoint"])
def test_a_killed_notary_publishes_nothing_twice_and_loses_nothing(
    new_sku: Callable[[], str], process_environment: dict[str, str], tmp_path: Path, place: str
) -> None:
    card = make_sale(new_sku(), units=2)
    road.queue(card, "ann", "bob")
    command = [sys.executable, "manage.py", "run_worker", "notary"]
    fault = {**process_environment, "FAIRDROP_FAULT": f"{place}:kill"}
    with running_process("killed", command, environment=fault, folder=tmp_path) as child:
        wait_until(lambda: child.exit_code is not None, what="the notary is killed")
    size = SaleLog.objects.filter(sale_id=card.sale_id).values_list("size", flat=True).first()
    assert (size is None) is (place == "before_checkpoint")  # a step is published whole or not at all
    road.settle_line(card)
    with running_process("next", command, environment=process_environment, folder=tmp_path):
        wait_until(
            lambda: SaleLog.objects.filter(sale_id=card.sale_id, size__gte=5).exists(), what="all of it is published"
        )
    checked(card)
    assert [kind for kind, *_ in told(card)] == ["opened", "admitted", "admitted", "decided", "decided"]
