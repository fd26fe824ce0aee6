"""The audit is green after every act of a sale's life, and in what it calls sold out it tells before from after.
Real servers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import override_settings

from inventory import ledger
from inventory.audit.run import read_books
from inventory.records import Ticket, sign_ticket
from inventory.redis import keys
from shop.buyers import ticket_signer
from shop.models import Order, Sale
from shop.orders import holds, restoring
from shop.payments import notices, refunds
from shop.payments.providers import Notice
from shop.sales import priming
from shop.sales.audit import audit_sale, scope_of
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.integration.inventory.audit.test_audit import ORDER, SET_MOVE, broken_after, expire, off, rewritten_moves
from tests.support.road import admit, ask, forget, own_connection, queue, run, settle_line
from tests.support.shopkeeping import make_sale, pay
from workers.embedded.server import free_port
from workers.management.commands import audit as command

pytestmark = pytest.mark.usefixtures("shop_database")
STAFF = {"actor": "staff", "reason": "a test"}


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale of two units, one a buyer."""
    return make_sale(new_sku(), units=2)


def capture(name: str) -> Callable[[], str]:
    """Begin a payment; return what lets its money come in."""
    payment = notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")
    notice = Notice(payment.reference, "captured", payment.reference, payment.amount, payment.currency)
    return lambda: notices.take_notice(notice, provider_name="sandbox")


def whole_life(card: SaleCard) -> Iterator[str]:
    """Do one act after another; yield what was done."""
    ann, bob, cat, dan = queue(card, "ann", "bob", "cat", "dan")
    yield "asked"
    settle_line(card)
    yield "held and waitlisted"
    pay(ann)
    yield "paid"
    late = capture(bob)
    expire(bob)
    yield "expired"
    settle_line(card)
    yield "the next in line holds"
    assert late() == "refund_due"
    yield "paid too late and refunded"
    holds.cancel(cat, buyer="cat")
    yield "cancelled"
    (eve,) = queue(card, "eve")
    holds.cancel(eve, buyer="eve")
    yield "left the line"
    settle_line(card)
    late = capture(dan)
    expire(dan)
    assert late() == "paid"
    yield "paid late, in time for the unit"
    sale_control.restock(card.slug, units=2, **STAFF)
    yield "restocked"
    sale_control.adjust(card.slug, units=-1, **STAFF)
    yield "adjusted"
    refunds.refund_order(ann, **STAFF)
    yield "refunded by staff"
    queue(card, "gus")
    sale_control.pause(card.slug, **STAFF)
    settle_line(card)
    yield "paused"
    sale_control.resume(card.slug, **STAFF)
    settle_line(card)
    yield "resumed"
    queue(card, "hal", "ivy", "joe")
    seq = int(run(("ZSCORE", keys.line(card.sku), ask(card, "hal").request_id))[0])
    forget(card)
    yield "Redis lost everything"
    priming.prime_sale(card.slug)
    yield "primed again"
    ticket = Ticket(ask(card, "hal").request_id, "hal", 1, seq)
    restoring.restore(sign_ticket(ticket_signer(), ticket), buyer="hal")
    yield "brought back by a ticket"
    settle_line(card)
    queue(card, "kim", "leo")
    settle_line(card)
    yield "all is held again"
    sale_control.close(card.slug, **STAFF)
    settle_line(card)
    yield "closed"


def broken(card: SaleCard) -> list[dict[str, Any]]:
    return [each for each in audit_sale(card.slug, thorough=True)["invariants"] if not each["ok"]]


def test_the_audit_is_green_after_every_act(card: SaleCard) -> None:
    stages = [(stage, broken(card)) for stage in whole_life(card)]
    assert [(stage, found) for stage, found in stages if found] == []
    counts = audit_sale(card.slug)["counts"]
    assert counts["available"] + counts["held"] + counts["sold"] == counts["total"]
    states = set(Order.objects.filter(sale_id=card.sale_id).values_list("state", flat=True))
    assert states == {"held", "paid", "cancelled", "refunded", "sold_out"}


def test_a_limit_that_was_lowered_makes_nobody_a_cheat(new_sku: Callable[[], str]) -> None:
    """A late payment takes its unit again under the limit of its order, which is above the present one."""
    card = make_sale(new_sku(), units=4, limit=3)
    first, second, third = (ask(card, "ann", key=key) for key in ("first", "second", "third"))
    admit(card, first, second)
    settle_line(card)
    late = capture(first.request_id)
    expire(first.request_id)
    sale_control.change_terms(card.slug, per_buyer_limit=2, **STAFF)
    assert broken(card) == []
    admit(card, third)
    settle_line(card)
    assert late() == "paid"
    assert sorted(Order.objects.filter(sale_id=card.sale_id).values_list("state", flat=True)) == [
        "held",
        "held",
        "paid",
    ]
    assert broken(card) == []


def test_who_waits_is_counted_as_told_so(card: SaleCard) -> None:
    queue(card, "ann", "bob", "cat", "dan", "eve")
    settle_line(card)
    counts = audit_sale(card.slug)["counts"]
    assert [counts[name] for name in ("orders_held", "waiting", "waitlisted", "in_flight")] == [2, 3, 3, 0]


SOLD_OUT = """
INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price, currency,
                        decided_at)
VALUES ('too late', %s, 'zoe', 1, 1, 9000000000000000, 'sold_out', '', 1, 'EUR', clock_timestamp())
"""


def told_sold_out(card: SaleCard) -> dict[str, str]:
    """Tell one more buyer that all is sold out, in a transaction that is rolled back; return what is broken."""
    scope = scope_of(Sale.objects.select_related("stock").get(pk=card.sale_id))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SOLD_OUT, [card.sale_id])
        found = read_books(cursor, scope).findings
        transaction.set_rollback(True)
    return {each.id: each.detail for each in found if not each.ok}


def test_sold_out_is_judged_by_what_was_free_then(card: SaleCard) -> None:
    names = queue(card, "ann", "bob", "cat")
    settle_line(card)
    assert told_sold_out(card) == {}
    pay(*names[:2])
    settle_line(card)
    assert Order.objects.get(request_id=names[2]).state == "sold_out"
    # A unit that comes afterwards makes nobody a liar; anyone who is told so after that is lied to.
    assert broken(card) == []
    sale_control.restock(card.slug, units=1, **STAFF)
    assert broken(card) == []
    assert told_sold_out(card) == {"I9": "too late wanted 1, 1 were free"}
    sale_control.adjust(card.slug, units=-1, **STAFF)
    assert told_sold_out(card) == {}
    refunds.refund_order(names[0], **STAFF)
    assert broken(card) == []
    assert told_sold_out(card) == {"I9": "too late wanted 1, 1 were free"}


def test_what_came_into_stock_and_was_taken_away_again_is_counted(card: SaleCard) -> None:
    before = audit_sale(card.slug)["counts"]
    for units in (-1, 1):
        sale_control.adjust(card.slug, units=units, **STAFF)
    sale_control.restock(card.slug, units=2, **STAFF)
    after = audit_sale(card.slug)["counts"]
    assert (after["total"], after["put_in"]) == (before["total"] + 2, before["put_in"] + 3)


def test_a_restock_that_waited_for_its_turn_makes_no_liar_of_the_settler(card: SaleCard) -> None:
    names = queue(card, "ann", "bob", "cat")
    settle_line(card)
    with own_connection() as slow, slow.transaction(), slow.cursor() as cursor:
        cursor.execute("SELECT now()")  # it begins here, and has its turn at the stock after the settler
        pay(*names[:2])
        settle_line(card)
        ledger.load_stock(cursor, sku=card.sku, units=1, actor="staff", reason="late")
    assert Order.objects.get(request_id=names[2]).state == "sold_out"
    assert [each["id"] for each in broken(card) if each["id"] != "I21"] == []


TOLD_SOLD_OUT = ORDER.format(state="'sold_out'", count=1)
LAST = "id = (SELECT max(id) FROM inventory_stockmovement WHERE stock_id = %(stock_id)s)"
LIE = {"I9": "extra-1 wanted 1, 1 were free"}
NUMBER_LOST = "DELETE FROM salelog_lineevent WHERE stock_id = %(stock_id)s AND number <= {}"


def sold_out_and_restocked(card: SaleCard) -> None:
    """Tell cat that both units are sold; then bring one more."""
    names = queue(card, "ann", "bob", "cat")
    settle_line(card)
    pay(*names[:2])
    settle_line(card)
    sale_control.restock(card.slug, units=1, **STAFF)


def test_a_step_of_the_clock_makes_no_liar_and_hides_none(card: SaleCard) -> None:
    sold_out_and_restocked(card)
    early, late = (
        rewritten_moves(SET_MOVE.format(f"created_at = created_at + interval '{step}'", LAST))
        for step in ("-1 hour", "1 hour")
    )
    assert broken_after(card, early)[0] == {}
    assert broken_after(card, [*late, TOLD_SOLD_OUT])[0] == LIE


@pytest.mark.parametrize("lost", ["(SELECT min(number) FROM inventory_load WHERE stock_id = %(stock_id)s)", "1e15"])
def test_what_was_loaded_before_there_were_numbers_is_put_in_by_the_clock(card: SaleCard, lost: str) -> None:
    sold_out_and_restocked(card)
    unnumbered = off("salelog_lineevent", "line_events_never_change", NUMBER_LOST.format(lost))
    assert broken_after(card, unnumbered)[0] == {}
    assert broken_after(card, [*unnumbered, TOLD_SOLD_OUT])[0] == LIE


def test_an_expired_hold_is_free_for_the_next(card: SaleCard) -> None:
    (ann,) = queue(card, "ann")
    queue(card, "bob")
    settle_line(card)
    expire(ann)
    assert told_sold_out(card) == {"I9": "too late wanted 1, 1 were free"}


def test_the_command_shows_the_same(card: SaleCard) -> None:
    out = StringIO()
    call_command("audit", "--sale", card.slug, "--json", "--thorough", stdout=out)
    report = json.loads(out.getvalue())[card.slug]
    assert report["invariants"] == audit_sale(card.slug)["invariants"]
    run(("HINCRBY", keys.stock(card.sku), "queued", 1))
    with pytest.raises(CommandError, match=card.slug):
        call_command("audit", card.slug, stdout=out)
    assert "I15  ✗ 1 units queued at rest" in out.getvalue()


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["as text", "as JSON"])
def test_no_sale_at_all_is_no_proof(shop_database: None, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    monkeypatch.setattr(command.Sale, "objects", Sale.objects.none())
    with pytest.raises(CommandError, match="there is no sale to audit"):
        call_command("audit", *options)


def test_the_command_watches_until_it_is_stopped(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        run(("HINCRBY", keys.stock(card.sku), "queued", 1 if len(slept) == 1 else -1))
        if len(slept) == 3:
            raise KeyboardInterrupt

    # The command's own clock only: a thread that sleeps elsewhere must not take one of the three turns.
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    out = StringIO()
    with pytest.raises(CommandError, match=f"broken: {card.slug}"):
        call_command("audit", card.slug, "--watch", stdout=out)
    looks = out.getvalue().split(f" {card.slug}  ")
    assert len(slept) == 3
    assert "(broken in 1 of 3 looks)" in looks[-1]


@pytest.mark.parametrize("store", ["PostgreSQL", "Redis"])
def test_a_store_that_goes_away_does_not_end_the_watch(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    slept: list[float] = []
    address = settings.REDIS_URL

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        monkeypatch.setattr(settings, "REDIS_URL", address)
        if len(slept) == 3:
            raise KeyboardInterrupt
        if len(slept) == 1 and store == "Redis":
            monkeypatch.setattr(settings, "REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
        elif len(slept) == 1:
            with own_connection() as other:
                other.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])

    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    out, err = StringIO(), StringIO()
    call_command("audit", card.slug, "--watch", stdout=out, stderr=err)
    assert out.getvalue().count(f"✓ {card.slug}  ") == 2
    assert err.getvalue().count("(look without an answer: 1)") == err.getvalue().count("without an answer") == 1


def test_a_watch_that_gets_no_answer_at_its_first_look_ends(card: SaleCard) -> None:
    with pytest.raises(CommandError, match="There is no sale 'nowhere'"):
        call_command("audit", card.slug, "nowhere", "--watch")
    away = override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    with away, pytest.raises(CommandError, match="did not answer in time"):
        call_command("audit", card.slug, "--watch")
