"""A buyer gets the terms they were let in under, whatever was written, told or lost in which order."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from threading import Event
from typing import Any

import pytest
from django.db import connection, connections

from inventory import redis
from inventory.exceptions import InvalidRequest, LimitReached, RedisUnavailable, TermsChanged
from inventory.line import admission
from inventory.line.admission import MAX_ENDED_REQUESTS, Answer, Code
from inventory.postgres import TwoKeyAdvisoryLock
from inventory.records import Ticket, read_record, read_ticket, sign_ticket
from inventory.redis import keys
from inventory.states import State
from shop.buyers import issue_buyer, ticket_signer
from shop.gate.purchase import Purchases
from shop.gate.sales.cache import Board
from shop.gate.sales.state import FRESH_SECONDS
from shop.gate.server.rates import Rates
from shop.models import Order, Sale
from shop.orders import holds, requests, restoring
from shop.replies import AwaitedReply, LateAnswers
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support.past_sales import next_sale, over
from tests.support.road import admit, ask, forget, keys_of, queue, run, settle_line, snapshot, wait_until_reopened
from tests.support.shopkeeping import assert_books_balance, audit_of, make_sale, pay_all
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
STAFF = "test"


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Five units at 15.00, two a buyer."""
    return make_sale(new_sku(), units=5, limit=2)


def ask_for(card: SaleCard, buyer: str, *, version: int, quantity: int = 1) -> Answer:
    return admit(card, ask(card, buyer, quantity=quantity)._replace(terms_version=version))[0]


def change(card: SaleCard, **terms: object) -> SaleCard:
    sale_control.change_terms(card.slug, actor=STAFF, **terms)
    return catalogue.find_sale(card.slug)


def prices(card: SaleCard) -> dict[str, Decimal]:
    return dict(Order.objects.filter(sale_id=card.sale_id).values_list("buyer", "unit_price"))


@pytest.mark.parametrize("told", [True, False], ids=["the line was told", "the message was lost"])
def test_door_and_books_never_differ(card: SaleCard, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new price is committed, and the line hears of it or not: what it lets people in under is what they pay."""
    queue(card, "ann")
    if not told:
        monkeypatch.setattr(priming, "prime_sale", lost)
    change(card, price=Decimal("5.00"))
    queue(card, "bob")
    settle_line(card)
    assert prices(card) == {"ann": Decimal("15.00"), "bob": Decimal("5.00") if told else Decimal("15.00")}
    assert_books_balance(card)


def lost(_slug: str) -> None:
    raise RedisUnavailable


def test_a_limit_that_goes_to_and_fro_refuses_nobody_who_was_let_in(card: SaleCard) -> None:
    for number in range(4):
        change(card, per_buyer_limit=1 + number % 2)
        admit(card, ask(card, f"buyer-{number}", quantity=1 + number % 2))
    settle_line(card)
    assert not Order.objects.filter(sale_id=card.sale_id, state="refused").exists()
    assert_books_balance(card)


def test_an_order_with_other_terms_than_its_version_is_found(card: SaleCard) -> None:
    """The control of the invariant: the sale's row of today decides, as it did before terms had versions."""
    queue(card, "ann")
    change(card, price=Decimal("5.00"))
    version = catalogue.find_sale(card.slug).terms_version
    settle_line(card)
    Order.objects.filter(sale_id=card.sale_id).update(terms_version=version)
    assert [each["id"] for each in audit_of(card)["invariants"] if not each["ok"]] == ["I6", "I23"]


@pytest.mark.parametrize(
    ("terms", "quantity", "code"),
    [
        ({"price": Decimal("16.00")}, 1, Code.TERMS_CHANGED),
        ({"price": Decimal("14.00")}, 1, Code.ADMITTED),
        ({"per_buyer_limit": 1}, 2, Code.TERMS_CHANGED),
        ({"per_buyer_limit": 1}, 1, Code.ADMITTED),
        ({"per_buyer_limit": 3}, 2, Code.ADMITTED),
        ({"hold_seconds": 599}, 1, Code.TERMS_CHANGED),
        ({"hold_seconds": 601}, 1, Code.ADMITTED),
        ({"currency": "CHF", "price": Decimal("1.00")}, 1, Code.TERMS_CHANGED),
    ],
)
def test_who_was_shown_better_terms_is_asked_again(
    card: SaleCard, terms: dict[str, object], quantity: int, code: Code
) -> None:
    Sale.objects.filter(pk=card.sale_id).update(**terms)
    priming.prime_sale(card.slug)
    changed, before = catalogue.find_sale(card.slug), snapshot(card)
    answer = ask_for(card, "ann", version=card.terms_version, quantity=quantity)
    assert answer.code == code
    if code is Code.TERMS_CHANGED:
        assert snapshot(card) == before
        again = ask_for(card, "ann", version=changed.terms_version, quantity=1)
        assert (again.code, again.terms_version) == (Code.ADMITTED, changed.terms_version)


def test_a_pause_is_no_change_of_terms(card: SaleCard) -> None:
    sale_control.pause(card.slug, actor=STAFF, reason="a box fell down")
    sale_control.resume(card.slug, actor=STAFF)
    paused = catalogue.find_sale(card.slug)
    assert (paused.terms_version, paused.revision > card.revision) == (card.terms_version, True)
    assert ask_for(card, "ann", version=card.terms_version).code == Code.ADMITTED


def test_a_known_request_is_answered_before_its_terms_are_compared(card: SaleCard) -> None:
    queue(card, "ann")
    change(card, price=Decimal("99.00"))
    for version in (card.terms_version, 1000):
        assert ask_for(card, "ann", version=version).code > Code.KNOWN_BEFORE


def test_a_version_that_the_line_does_not_know_is_looked_up(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page showed what the database says, before the line had heard of it."""
    with monkeypatch.context() as patch:
        patch.setattr(priming, "prime_sale", lost)
        changed = change(card, price=Decimal("5.00"))
    assert ask_for(card, "ann", version=changed.terms_version).code == Code.TERMS_UNKNOWN
    view = requests.ask(card, buyer="ann", quantity=1, idempotency_key="", terms_version=changed.terms_version)
    assert view.terms_version == changed.terms_version
    before = snapshot(card)
    with pytest.raises(InvalidRequest, match="terms_version"):
        requests.ask(card, buyer="bob", quantity=1, idempotency_key="", terms_version=1000)
    assert snapshot(card) == before
    now = change(card, price=Decimal("50.00"))
    with pytest.raises(TermsChanged) as refused:
        requests.ask(now, buyer="bob", quantity=1, idempotency_key="", terms_version=changed.terms_version)
    assert refused.value.extra == {"terms_version": now.terms_version, "price": "50.00", "per_buyer_limit": 2}


def ask_gate(
    card: SaleCard, *, version: int, buyers: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Counter[int], Counter[str]]:
    """Let a crowd ask one web process at once; return how often it answered each status, and read or primed a sale.

    The catalogue is read meanwhile, by the threads that read the sale again.
    """
    work: Counter[str] = Counter()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **named: Any) -> Any:
            work[name] += 1
            return call(*args, **named)

        return counting

    async def go() -> Counter[int]:
        client, late = redis.connect_async(), LateAnswers()
        board = Board(client, load_cards=lambda: [card], prime_card=counted("primed", priming.prime_card))
        purchases, entry = Purchases(client, board, late, rates=Rates(0, 0)), await board.find(card.slug)
        await board._refresh_figures()
        body = json.dumps({"quantity": 1, "terms_version": version}).encode()
        replies = [AwaitedReply() for _ in range(buyers)]
        for reply in replies:
            headers = {b"authorization": f"Bearer {issue_buyer()[1]}".encode(), b"content-type": b"application/json"}
            purchases.handle(reply, (entry, ("", "")), headers, body)
        await board._load(not_before=time.monotonic())
        answers = await asyncio.gather(*(reply.answer() for reply in replies))
        await purchases.stop()
        await board.stop()
        await client.aclose()
        return Counter(head.status for head, _ in answers)

    with monkeypatch.context() as patch:
        patch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)  # the board's threads leave none open
        patch.setattr(catalogue, "find_sale_by_id", counted("read", catalogue.find_sale_by_id))
        return asyncio.run(go()), work


def test_a_crowd_with_a_version_that_is_not_known_here_is_looked_up_together(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that never was primes nothing. The control is one of which the line has not heard: it is primed for all."""
    card = make_sale(new_sku(), units=200)
    answers, work = ask_gate(card, version=999, buyers=200, monkeypatch=monkeypatch)
    assert answers == {400: 200}
    assert work["read"] <= 3
    assert not work["primed"]
    monkeypatch.setattr(priming, "prime_sale", lost)
    changed = change(card, price=Decimal("5.00"))
    answers, work = ask_gate(card, version=changed.terms_version, buyers=200, monkeypatch=monkeypatch)
    assert answers == {202: 200}
    assert 1 <= work["primed"] <= work["read"] <= 3


def test_a_place_that_comes_back_by_its_ticket_keeps_its_terms(card: SaleCard) -> None:
    view = requests.ask(card, buyer="ann", quantity=1, idempotency_key="")
    place = Ticket(view.request_id, "ann", 1, view.seq, view.terms_version, view.ordinal)
    change(card, price=Decimal("99.00"))
    forget(card)
    priming.prime_sale(card.slug)
    restoring.restore(sign_ticket(ticket_signer(), place), buyer="ann")
    settle_line(card)
    assert prices(card) == {"ann": Decimal("15.00")}
    assert_books_balance(card)


def test_a_ticket_from_before_there_were_versions_is_good(card: SaleCard) -> None:
    (name,) = queue(card, "ann")
    body = f"{name}.ann.1.77"
    old = f"{body}.{ticket_signer().sign(body)}"
    assert read_ticket(ticket_signer(), old) == Ticket(name, "ann", 1, 77)
    forget(card)
    priming.prime_sale(card.slug)
    assert restoring.restore(old, buyer="ann")[0].seq == 77
    settle_line(card)
    assert prices(card) == {"ann": Decimal("15.00")}


def test_a_record_from_before_there_were_versions_is_read(card: SaleCard) -> None:
    for text in ("q|5|1|7|ann", "q|5|1|7|ann|r", "h|5|1|7|ann|99"):
        record = read_record(text)
        assert (record.text(), record.terms_version, record.ordinal) == (text, 0, 0)
    for text in ("q|5|1|7|ann|3.12", "q|5|1|7|ann|3.12|r", "h|5|1|7|ann|3.12|99"):
        record = read_record(text)
        assert (record.text(), record.terms_version, record.ordinal, record.network) == (text, 3, 12, "")


@pytest.mark.parametrize("network", ["192.0.2", "20010db80000", "?unix"])
def test_a_record_that_waits_names_its_network(network: str) -> None:
    for text in (f"q|5|1|7|ann|3.12.{network}", f"b|5|1|7|ann|3.12.{network}|r"):
        record = read_record(text)
        assert (record.text(), record.terms_version, record.ordinal, record.network) == (text, 3, 12, network)


def test_ordinals_rise_by_one_and_jump_after_a_loss(card: SaleCard) -> None:
    queue(card, "ann", "bob")
    settle_line(card)
    forget(card)
    priming.prime_sale(card.slug)
    queue(card, "eve")
    settle_line(card)
    ordinals = Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("ordinal", flat=True)
    assert list(ordinals) == [1, 2, 2 + priming.ORDINAL_JUMP + 1]
    finding = next(each for each in audit_of(card)["invariants"] if each["id"] == "I5b")
    assert finding["ok"]
    assert "ordinals went on after 1000002" in finding["detail"]


@pytest.mark.parametrize(("locked", "first"), [(True, 1), (False, priming.ORDINAL_JUMP + 1)], ids=["locked", "not"])
def test_two_that_prime_a_new_sale_at_once_begin_at_its_first_place(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, locked: bool, first: int
) -> None:
    """The control: without the lock the second one takes what the first is about to write for lost."""
    with monkeypatch.context() as patch:
        patch.setattr(priming, "prime_sale", lambda _slug: None)
        card = make_sale(new_sku(), units=5)
    began, may_go_on, real = Event(), Event(), priming._prime

    def prime_late(*args: Any, **known: Any) -> Any:
        if not began.is_set():
            began.set()
            assert may_go_on.wait(60)
        return real(*args, **known)

    def prime() -> None:
        priming.prime_sale(card.slug)
        connections.close_all()

    monkeypatch.setattr(priming, "_prime", prime_late)
    if not locked:
        monkeypatch.setattr(priming, "_ordinals_locked", lambda _sku: nullcontext())
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(prime)
        assert began.wait(60)
        other = threads.submit(prime)
        wait_until(lambda: other.done() or waits_for_lock(card.sku), what="the second one waits, or is through")
        assert other.done() != locked
        may_go_on.set()
        one.result()
        other.result()
    queue(card, "ann")
    settle_line(card)
    assert Order.objects.get(sale_id=card.sale_id).ordinal == first


def test_two_sales_of_a_sku_are_primed_one_after_the_other(card: SaleCard) -> None:
    """They fill the same hashes of an empty Redis: an old look must not go over a newer one."""
    other = next_sale(over(card))
    forget(card)

    def prime() -> None:
        priming.prime_sale(other.slug)
        connections.close_all()

    with ThreadPoolExecutor(1) as threads, priming._ordinals_locked(card.sku):
        second = threads.submit(prime)
        wait_until(lambda: second.done() or waits_for_lock(card.sku), what="the second one waits")
        assert not second.done()
    second.result()


def waits_for_lock(sku: str) -> bool:
    """Say whether somebody waits for the lock of the ordinals of a SKU."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks"
            " WHERE classid = %s AND objid = hashtext(%s)::bit(32)::bigint AND NOT granted",
            [TwoKeyAdvisoryLock.ORDINALS, sku],
        )
        (waiting,) = cursor.fetchone()
    return waiting > 0


def test_one_buyer_gives_up_so_many_requests_and_no_more(card: SaleCard) -> None:
    for number in range(MAX_ENDED_REQUESTS):
        view = requests.ask(card, buyer="ann", quantity=1, idempotency_key=str(number))
        holds.cancel(view.request_id, buyer="ann")
    before = snapshot(card)
    with pytest.raises(LimitReached, match=f"{MAX_ENDED_REQUESTS} of your requests"):
        requests.ask(card, buyer="ann", quantity=1, idempotency_key="another")
    assert snapshot(card) == before
    forget(card)
    priming.prime_sale(card.slug)
    with pytest.raises(LimitReached, match=f"{MAX_ENDED_REQUESTS} of your requests"):
        requests.ask(card, buyer="ann", quantity=1, idempotency_key="another")
    assert admit(card, ask(card, "bob"))[0].code == Code.ADMITTED


def test_the_control_without_that_bound_each_ask_leaves_one_more_record(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_ENDED_REQUESTS", 1000)
    asks = MAX_ENDED_REQUESTS + 5
    for number in range(asks):
        view = requests.ask(card, buyer="ann", quantity=1, idempotency_key=str(number))
        holds.cancel(view.request_id, buyer="ann")
    assert len(snapshot(card)[keys.records(card.sku)]) == asks


def test_one_buyer_is_sold_out_so_often_and_no_more(new_sku: Callable[[], str]) -> None:
    """Each leaves a record. The control is another buyer, who is let in."""
    card = make_sale(new_sku(), units=1, limit=2)
    queue(card, "holder")
    settle_line(card)
    for number in range(MAX_ENDED_REQUESTS):
        view = requests.ask(card, buyer="ann", quantity=2, idempotency_key=str(number))
        settle_line(card)
        assert requests.look_up(view.request_id, buyer="ann").state == State.SOLD_OUT
    for _ in ("as it was", "after a loss"):
        before = snapshot(card)
        with pytest.raises(LimitReached, match=f"{MAX_ENDED_REQUESTS} of your requests"):
            requests.ask(card, buyer="ann", quantity=2, idempotency_key="another")
        assert snapshot(card) == before
        forget(card)
        priming.prime_sale(card.slug)
    assert admit(card, ask(card, "bob"))[0].code == Code.ADMITTED


@pytest.mark.parametrize("delay_us", [admission.REOPENING_US, 0], ids=["as it is", "the control"])
def test_nobody_is_let_in_while_a_process_may_remember_the_line_as_full(
    new_sku: Callable[[], str], delay_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the second click of the one who was let in could be answered "sold out" from another process's memory."""
    assert FRESH_SECONDS * 1_000_000 < admission.REOPENING_US
    # The longer delays are for a machine on which the first is over when we ask.
    codes = []
    for longer in (1, 10, 100) if delay_us else (1,):
        monkeypatch.setattr(admission, "REOPENING_US", delay_us * longer)
        card = make_sale(new_sku(), units=1, line_capacity=0)
        queue(card, "ann")
        assert admit(card, ask(card, "eve"))[0].code == Code.LINE_FULL
        holds.cancel(ask(card, "ann").request_id, buyer="ann")
        codes.append(admit(card, ask(card, "eve"))[0].code)
        wait_until_reopened(card)
        assert admit(card, ask(card, "eve"))[0].code in (Code.ADMITTED, Code.KNOWN_BEFORE + ord("q"))
        if codes[-1] == Code.LINE_FULL:
            break
    assert codes[-1] == (Code.LINE_FULL if delay_us else Code.ADMITTED)


@pytest.mark.parametrize(("ahead_us", "code"), [(3_600_000_000, Code.ADMITTED), (590_000_000, Code.LINE_FULL)])
def test_a_clock_that_went_back_keeps_no_line_shut(
    card: SaleCard, ahead_us: int, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reopened by a clock an hour ahead. The control is a moment within the delay."""
    monkeypatch.setattr(admission, "REOPENING_US", 600_000_000)
    ((seconds, micros),) = redis.run_commands(redis.connect(), [("TIME",)])
    reopens = int(seconds) * 1_000_000 + int(micros) + ahead_us
    assert run(("HSET", keys.stock(card.sku), "reopens_us", reopens)) is not None
    assert admit(card, ask(card, "ann"))[0].code == code


def test_a_line_that_is_sold_out_to_the_last_unit_opens_late_as_well(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks while it is full: the settlement that made it so has noted it."""
    monkeypatch.setattr(admission, "REOPENING_US", 10_000_000)  # longer than this machine stands still now and then
    queue(card, "ann", "bob", "eve", "joe", "kim")
    settle_line(card)
    pay_all(card)
    sale_control.restock(card.slug, units=1, actor=STAFF, reason="")
    assert admit(card, ask(card, "late"))[0].code == Code.LINE_FULL
    queue(card, "late")


def test_every_key_of_a_sale_is_in_the_hash_of_its_sku(card: SaleCard) -> None:
    other = replace(card, sale_id=card.sale_id + 1, ordinal_base=0)
    assert keys_of(other) == keys_of(card)
    assert redis.run_commands(redis.connect(), [("HEXISTS", keys_of(card)[-1], card.sale_id)]) == [1]
    assert run(("HEXISTS", keys_of(card)[-1], card.sale_id + 1)) == [0]
