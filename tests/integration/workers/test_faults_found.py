"""Each test is named after a fault that a review has found, and shows that it is gone. Uses the real servers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import Error as DjangoDatabaseError
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import override_settings
from structlog.testing import capture_logs

from inventory import redis
from inventory.audit import line as audit_line
from inventory.exceptions import InvalidRequest
from inventory.line import reading, writing
from inventory.line.dead_letters import change_letters
from inventory.models import Stock
from inventory.records import Ticket, sign_ticket
from inventory.redis import keys
from inventory.states import State
from shop.buyers import ticket_signer
from shop.gate.sales.cache import Board
from shop.gate.sales.state import SaleEntry
from shop.models import Order, Payment, Sale
from shop.orders import holds
from shop.orders.restoring import restore
from shop.payments import recovery
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support import road
from tests.support.desk import Desk
from tests.support.desk import open_desk as open_a_desk
from tests.support.paying import again, begin, happen, hear, hold
from tests.support.road import answer_batch
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import assert_books_balance, audit_of, let_holds_end, make_sale, pay
from tests.support.shown_sales import shown_sales
from tests.support.staff import browser_of
from tests.support.waiting import assert_waits_at_most
from workers import settler as settler_module
from workers.expirer import Expirer
from workers.reconciler.loop import Reconciler

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
# More than a settler needs for anything that it looks at again by itself.
ROUNDS = 40


def told(card: SaleCard, *names: str) -> list[State]:
    return [place.record.state for place in reading.places(redis.connect(), card.sku, names) if place]


def head_that_waits(sku: str) -> tuple[SaleCard, str, str]:
    """Two of three units are held; in line are one who wants two and, behind, one who wants one."""
    card = make_sale(sku, units=3, limit=2)
    road.admit(card, road.ask(card, "ann", quantity=2))
    road.settle_line(card)
    big, small = road.ask(card, "bob", quantity=2), road.ask(card, "eve")
    road.admit(card, big, small)
    return card, big.request_id, small.request_id


def take_and_die(card: SaleCard, *, probe: bool) -> writing.Handed:
    lock = road.held_lock(card.sku)
    handed = road.take(lock, probe=probe)
    lock.release()
    return handed


def test_control_a_batch_that_nobody_leaves_keeps_the_turn(new_sku: Callable[[], str]) -> None:
    card, big, small = head_that_waits(new_sku())
    settle_slowly(card, lambda: None)
    road.settle_line(card)
    assert told(card, big, small) == [State.WAITLISTED, State.WAITLISTED]


def test_a_batch_inherited_one_by_one_lets_the_small_one_pass_the_head(new_sku: Callable[[], str]) -> None:
    card, big, small = head_that_waits(new_sku())
    assert [take_and_die(card, probe=probe).kind for probe in (True, False)] == ["fresh", "again"]
    road.settle_line(card)
    assert told(card, big, small) == [State.WAITLISTED, State.WAITLISTED]


def test_a_batch_inherited_by_a_settler_of_smaller_batches_lets_the_small_one_pass_the_head(
    new_sku: Callable[[], str],
) -> None:
    card, big, small = head_that_waits(new_sku())
    take_and_die(card, probe=True)
    road.settle_line(card, batch=1)
    assert told(card, big, small) == [State.WAITLISTED, State.WAITLISTED]


def test_out_of_turn_breaks_the_audit(new_sku: Callable[[], str]) -> None:
    card, _, _ = head_that_waits(new_sku())
    take_and_die(card, probe=True)
    take_and_die(card, probe=True)
    road.settle_line(card)
    ann = Order.objects.get(sale_id=card.sale_id, buyer="ann").request_id
    holds.cancel(ann, buyer="ann")
    road.settle_line(card)
    report = audit_of(card)
    assert report["ok"], [each for each in report["invariants"] if not each["ok"]]


def test_a_paused_sale_that_is_over_keeps_its_line_for_ever(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    names = road.queue(card, "ann", "bob")
    sale_control.pause(card.slug, actor="olga", reason="a fault at packing")
    with road.own_connection() as own:
        own.execute("UPDATE shop_sale SET closes_at = clock_timestamp() WHERE id = %s", [card.sale_id])
    priming.prime_sale(card.slug)
    road.settle_line(card)
    assert told(card, *names) == [State.HELD, State.SOLD_OUT]


def test_a_paused_sale_that_is_over_cannot_be_closed(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    road.queue(card, "ann", "bob")
    sale_control.pause(card.slug, actor="olga", reason="a fault at packing")
    with road.own_connection() as own:
        own.execute("UPDATE shop_sale SET closes_at = clock_timestamp() WHERE id = %s", [card.sale_id])
    sale_control.close(card.slug, actor="olga")
    assert Sale.objects.get(pk=card.sale_id).operator_state == "on"  # its time ended it, not the shop


def a_locked_stock(card: SaleCard) -> Any:
    own = road.own_connection()
    held = own.__enter__()
    held.execute("BEGIN")
    held.execute("SELECT 1 FROM inventory_stock WHERE sku = %s FOR UPDATE", [card.sku])
    return own


@pytest.fixture
def short_patience(shop_database: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '300ms'")
    yield
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


@pytest.mark.usefixtures("short_patience")
def test_a_busy_stock_row_lets_a_foreign_error_out_of_a_capture(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = hold(card, buyers=1)
    notice = happen(begin(name), "captured")
    own = a_locked_stock(card)
    try:
        with pytest.raises(DjangoDatabaseError):
            hear(notice)
    finally:
        own.__exit__(None, None, None)
    assert hear(notice) == "paid"


@pytest.mark.usefixtures("short_patience")
def test_a_busy_stock_row_ends_the_reconciler(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    happen(payment, "captured")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE shop_payment SET created_at = now() - interval '1 h', changed_at = now() - interval '1 h' "
            "WHERE id = %s",
            [payment.pk],
        )
        cursor.execute(
            "UPDATE shop_payment SET created_at = now() - interval '1 min', changed_at = now() - interval '30 s' "
            "WHERE id = %s",
            [payment.pk],
        )
    own = a_locked_stock(card)
    try:
        Reconciler(redis.connect(), stopping=lambda: False).work_once()
    finally:
        own.__exit__(None, None, None)


def test_a_busy_stock_row_is_a_500_for_who_pays(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    with web_process(process_environment, folder=tmp_path) as web:  # with the bounds that a shop has
        desk: Desk = open_a_desk(web, shown_sales(web, new_sku))
        own = a_locked_stock(desk.card)
        try:
            answer = desk.call("payment", body={})
        finally:
            own.__exit__(None, None, None)
    assert answer.status == 503, answer.body[:300]


def owed(name: str) -> Payment:
    """Owe the money of a payment back while the provider is away."""
    payment = begin(name)
    notice = happen(payment, "captured")
    with override_settings(SANDBOX_MISCHIEF=["mute", "away"]):
        assert hear(again(notice, amount=Decimal("1.00"))) == "refund_due"
    return payment


def test_a_refund_that_never_works_keeps_the_others_from_being_asked_for(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=2)
    names = hold(card, buyers=2)
    bad, good = owed(names[0]), owed(names[1])
    # A provider that was taken out of the settings, or one that refuses this refund for good.
    Payment.objects.filter(pk=bad.pk).update(provider="gone", changed_at=Now())
    Payment.objects.filter(pk=good.pk).update(changed_at=Now())
    owed_to_all = Payment.objects.filter(state="refund_due", provider="sandbox").count()
    for _ in range(40 * owed_to_all):  # in any order that is fair to what other tests have left open, too
        recovery.bring_on(max_at_once=1)
        if Payment.objects.get(pk=good.pk).state == "refunded":
            break
    try:
        assert Payment.objects.get(pk=good.pk).state == "refunded"
    finally:
        Payment.objects.filter(pk=bad.pk).update(provider="sandbox")
        recovery.bring_on()


def test_a_part_refund_that_overtakes_its_capture_keeps_the_money_without_goods(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = hold(card, buyers=1)
    notice = happen(begin(name), "captured")
    hear(again(notice, kind="refunded", amount=Decimal("1.00")))
    hear(notice)
    payment = Payment.objects.get(reference=notice.reference)
    order = Order.objects.get(request_id=name)
    assert (payment.state, order.state) == ("captured", "paid")


def test_a_part_refund_of_what_is_owed_ends_the_debt(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = hold(card, buyers=1)
    payment = owed(name)
    notice = recovery.provider("sandbox").look_up(payment.reference)
    assert notice is not None
    with capture_logs() as entries:
        hear(again(notice, kind="refunded", amount=Decimal("1.00")))
    assert Payment.objects.get(pk=payment.pk).state == "refund_due"
    assert [each for each in entries if each.get("action") == "part_refund"] == []  # no order stays paid by it


def test_the_same_confirmed_form_sent_twice_restocks_twice(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    staff = browser_of()
    chosen = {"action": "restock", "_selected_action": card.sale_id}
    page = staff.post("/admin/shop/sale/", chosen).content.decode()
    # As a browser sends it: whatever hidden fields the page has, and what was typed.
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
    form = {**hidden, **chosen, "units": 5, "reason": "van", "confirm": "Restock"}
    for _ in range(2):
        staff.post("/admin/shop/sale/", form, follow=True)
    assert Stock.objects.get(sku=card.sku).total == 6


def test_a_price_rise_reaches_who_asked_before_it_when_the_lines_clock_is_ahead(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=5)
    # Redis' clock was ahead once: every seq since then is.
    first = road.ask(card, "ann")
    ahead = Ticket(first.request_id, "ann", 1, 4 * 10**15)
    restore(sign_ticket(ticket_signer(), ahead), buyer="ann")
    road.queue(card, "bob")
    sale_control.change_terms(card.slug, actor="olga", price=Decimal("99.00"))
    road.settle_line(card)
    assert Order.objects.get(sale_id=card.sale_id, buyer="bob").unit_price == Decimal("15.00")


def test_a_restock_of_too_many_units_is_no_refusal_but_a_fault(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    with pytest.raises(InvalidRequest):
        sale_control.restock(card.slug, units=2**31 - 1, actor="olga")


def test_who_asks_again_before_the_ticket_comes_loses_the_place(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    wish = road.ask(card, "ann")
    (answer,) = road.admit(card, wish)
    ticket = sign_ticket(ticket_signer(), Ticket(wish.request_id, "ann", 1, answer.seq))
    road.forget(card)
    priming.prime_sale(card.slug)
    road.queue(card, "bob")
    road.admit(card, wish)  # the retry of an ask whose answer was lost
    view, _ = restore(ticket, buyer="ann")
    assert (view.seq, view.position) == (answer.seq, 1)


def test_a_line_whose_version_is_ahead_makes_the_settler_spin(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_sale(new_sku(), units=1)
    road.queue(card, "ann", "bob")
    road.settle_line(card)
    road.run(("HINCRBY", keys.stock(card.sku), "version", 1000))
    calls = []
    settle = settler_module.settle_batch

    def counted(*args: Any, **named: Any) -> Any:
        calls.extend([1] * (named["sku"] == card.sku))  # other tests' lines are settled in the same round
        return settle(*args, **named)

    monkeypatch.setattr(settler_module, "settle_batch", counted)
    with road.settler() as worker:
        worker.work_once()
    assert len(calls) <= 3


def test_an_alarm_whose_figures_move_is_told_at_every_look(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=50)
    road.run(("HINCRBY", keys.stock(card.sku), "version", 1000))
    reconciler = Reconciler(redis.connect(), stopping=lambda: False)
    news = []
    for number in range(3):
        sale_control.restock(card.slug, units=1, actor=f"olga-{number}")
        drifts = reconciler.compare(card.sku, sale_ids=[card.sale_id])
        news.append(len(reconciler._news([each for each in drifts if each.kind == "stock_ahead"])))
    assert news == [1, 0, 0]


def test_what_is_paid_while_redis_is_primed_is_told_as_held(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = hold(card, buyers=1)
    road.forget(card)
    write = priming.line_priming.prime_fields

    def pay_meanwhile(*args: Any, **named: Any) -> None:
        monkeypatch.setattr(priming.line_priming, "prime_fields", write)
        pay(name)  # committed after the snapshot, told before the stock is primed: told to nobody
        write(*args, **named)

    monkeypatch.setattr(priming.line_priming, "prime_fields", pay_meanwhile)
    priming.prime_sale(card.slug)
    assert Order.objects.get(request_id=name).state == "paid"
    assert told(card, name) == [State.PAID]


def test_a_payment_is_never_told_as_held_after_redis_was_primed(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came after the first look at the database. From the last one until the stock is known no other may come."""
    card = make_sale(new_sku(), units=1)
    (name,) = hold(card, buyers=1)
    road.forget(card)
    lock, prime, seen = priming.ledger.lock_stock, priming.line_priming.prime, []

    def pay_first(cursor: Any, **named: Any) -> Any:
        monkeypatch.setattr(priming.ledger, "lock_stock", lock)
        with ThreadPoolExecutor(1) as another:  # a payment is a transaction of its own
            another.submit(pay, name).result()
            another.submit(lambda: connection.close()).result()
        return lock(cursor, **named)

    def look_after(*args: Any, **named: Any) -> Any:
        done = prime(*args, **named)
        seen.extend(told(card, name))
        with road.own_connection() as other, pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SELECT 1 FROM inventory_stock WHERE sku = %s FOR UPDATE NOWAIT", [card.sku])
        return done

    monkeypatch.setattr(priming.ledger, "lock_stock", pay_first)
    monkeypatch.setattr(priming.line_priming, "prime", look_after)
    priming.prime_sale(card.slug)
    assert seen == [State.PAID]
    assert_books_balance(card)


def test_what_is_restocked_while_redis_is_primed_is_sold_out_at_the_door(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_sale(new_sku(), units=1)
    pay(*hold(card, buyers=1))
    road.forget(card)
    write = priming.line_priming.prime_fields

    def restock_meanwhile(*args: Any, **named: Any) -> None:
        monkeypatch.setattr(priming.line_priming, "prime_fields", write)
        sale_control.restock(card.slug, units=3, actor="olga")
        write(*args, **named)

    monkeypatch.setattr(priming.line_priming, "prime_fields", restock_meanwhile)
    priming.prime_sale(card.slug)
    found = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    assert found is not None
    assert found.available == 3


def test_the_question_for_lost_notices_has_no_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        plan = recovery._silent(recovery.FIRST_QUESTION).explain()
        cursor.execute("SET enable_seqscan = on")
    assert "payment_asked_about" in plan, plan


def test_one_that_was_set_aside_and_is_cancelled_stays_counted_as_aside(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = road.queue(card, "ann")
    client = redis.connect()
    for _ in range(writing.MAX_HAND_OUTS + writing.REFUSAL_TRIES + 2):
        lock = road.held_lock(card.sku)
        road.take(lock)
        lock.release()
    assert audit_line.look(client, card.sku).aside == 1
    holds.cancel(name, buyer="ann")
    change_letters(client, card.sku, [name], mode="discard", actor="olga")
    seen = audit_line.look(client, card.sku)
    assert (seen.aside, seen.admitted, seen.decided) == (0, 1, 1)
    assert_books_balance(card)


def test_a_price_rise_reaches_who_asked_before_the_door_and_the_page_knew_of_it(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows the old price and Redis has the old terms until they are told, after COMMIT."""
    card = make_sale(new_sku(), units=5)
    tell = sale_control.tell_line

    def asked_meanwhile(slug: str) -> None:
        road.queue(card, "bob")
        tell(slug)

    monkeypatch.setattr(sale_control, "tell_line", asked_meanwhile)
    sale_control.change_terms(card.slug, actor="olga", price=Decimal("99.00"))
    road.settle_line(card)
    assert Order.objects.get(sale_id=card.sale_id, buyer="bob").unit_price == Decimal("15.00")


def test_one_busy_stock_row_keeps_the_holds_of_other_skus_from_ending(new_sku: Callable[[], str]) -> None:
    """The expirer waits for a busy row for a moment; the database itself would let it wait for 4 s."""
    assert_waits_at_most(1.5, lambda: seconds_beside_a_busy_row(new_sku))


def seconds_beside_a_busy_row(new_sku: Callable[[], str]) -> float:
    """Return how long a hold that is due outlives its end while somebody keeps the stock row of another SKU."""
    busy, other = make_sale(new_sku(), units=1), make_sale(new_sku(), units=1)
    (first,), (second,) = hold(busy, buyers=1), hold(other, buyers=1)
    let_holds_end(first)
    let_holds_end(second)
    expirer = Expirer(stopping=lambda: False)
    own = a_locked_stock(busy)
    began = time.monotonic()
    try:
        while Order.objects.get(request_id=second).state == "held":
            expirer.work_once()
        took = time.monotonic() - began
    finally:
        own.__exit__(None, None, None)
        expirer.close()
    return took


def test_a_long_name_of_the_staff_is_a_fault_and_no_act(new_sku: Callable[[], str]) -> None:
    """Django's user names may have 150 letters."""
    card = make_sale(new_sku(), units=1)
    staff = Client(raise_request_exception=False)
    staff.force_login(User.objects.create_superuser(f"{token_hex(4)}-{'o' * 100}@example.org"))
    form = {"action": "close", "_selected_action": card.sale_id, "reason": "", "confirm": "Close"}
    assert staff.post("/admin/shop/sale/", form).status_code == 302


def test_a_hold_that_is_dear_cannot_be_paid(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=500, limit=500)
    sale_control.change_terms(card.slug, actor="olga", price=Decimal("99999999.99"))
    wish = road.ask(card, "ann", quantity=200)
    road.admit(card, wish)
    road.settle_line(card)
    begin(wish.request_id)


def test_a_limit_that_was_raised_is_refused_after_the_door(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=5, limit=1)
    sale_control.change_terms(card.slug, actor="olga", per_buyer_limit=3)
    wish = road.ask(card, "ann", quantity=3)
    assert road.admit(card, wish)[0].code == 1
    road.settle_line(card)
    assert told(card, wish.request_id) == [State.HELD]


def settle_slowly(card: SaleCard, meanwhile: Callable[[], object]) -> None:
    """Decide what is in line; `meanwhile` happens after COMMIT and before the line is told."""
    lock = road.held_lock(card.sku)
    handed = road.take(lock, probe=True)
    assert handed.requests
    with road.own_connection() as own:
        settlement = road.settle_batch(own, sku=card.sku, fence=lock.fence, requests=handed.requests)
    meanwhile()
    answer_batch(redis.connect(), card.sku, token=lock.token, call=1, **settlement._asdict())
    lock.release()


def decided_in_some_rounds(card: SaleCard, name: str) -> State:
    """Let a settler look again and again, as it does; return what `name` was told by then."""
    with road.settler() as worker:
        for _ in range(ROUNDS):
            worker.work_once()
            if told(card, name)[0] not in (State.QUEUED, State.WAITLISTED):
                break
            time.sleep(0.05)
    return told(card, name)[0]


def test_a_head_that_leaves_while_its_batch_is_answered_keeps_a_free_unit_from_the_next(
    new_sku: Callable[[], str],
) -> None:
    card, big, small = head_that_waits(new_sku())
    settle_slowly(card, lambda: holds.cancel(big, buyer="bob"))
    assert decided_in_some_rounds(card, small) is State.HELD


def test_a_resume_while_a_batch_is_answered_leaves_the_line_asleep(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = road.queue(card, "ann")
    sale_control.pause(card.slug, actor="olga", reason="a fault at packing")
    settle_slowly(card, lambda: sale_control.resume(card.slug, actor="olga"))
    assert decided_in_some_rounds(card, name) is State.HELD


def test_a_close_while_a_batch_is_answered_leaves_the_line_asleep(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    hold(card, buyers=1)
    (name,) = road.queue(card, "ann")
    settle_slowly(card, lambda: sale_control.close(card.slug, actor="olga"))
    assert decided_in_some_rounds(card, name) is State.SOLD_OUT


def look_at_what_is_sold_out(card: SaleCard, monkeypatch: pytest.MonkeyPatch, *, meanwhile: list[str]) -> SaleEntry:
    """Let a board learn who is known to a sale without room, while the names in `meanwhile` are let in after all."""
    entry, read = SaleEntry(card), reading.known_buyers_async

    def let_in() -> None:
        for buyer in meanwhile:
            sale_control.restock(card.slug, units=1, actor="olga")
            road.queue(card, buyer)
            entry.note_admission()
        connection.close()  # this thread's own

    async def read_slowly(client: redis.AsyncClient, sku: str) -> set[str]:
        known = await read(client, sku)
        await asyncio.to_thread(let_in)
        return known

    figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    entry.see(figures, moment=time.monotonic())

    async def look() -> None:
        client = redis.connect_async()
        await Board(client, load_cards=list)._learn_known_buyers(entry, figures)
        await client.aclose()

    monkeypatch.setattr(reading, "known_buyers_async", read_slowly)
    asyncio.run(look())
    entry.seen_at = time.monotonic()  # however slow this machine is
    return entry


def test_who_is_let_in_while_a_board_learns_the_others_is_told_sold_out(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_sale(new_sku(), units=1)
    pay(hold(card, buyers=1)[0])
    assert look_at_what_is_sold_out(card, monkeypatch, meanwhile=[]).is_surely_sold_out("eve")  # the control
    assert not look_at_what_is_sold_out(card, monkeypatch, meanwhile=["eve"]).is_surely_sold_out("eve")
