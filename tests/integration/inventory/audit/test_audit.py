"""Each invariant of the database, broken on purpose, is named alone, and by the request that broke it.
The damage is done in a transaction that is rolled back. Real servers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection, transaction

from inventory.audit.run import read_books
from inventory.states import AFTER_RESTORE, State
from shop.models import Order, Payment, Sale
from shop.orders import holds
from shop.payments import notices, refunds
from shop.payments.providers import Notice
from shop.sales.audit import audit_sale, scope_of
from shop.sales.catalogue import SaleCard
from tests.support.road import admit, ask, queue, settle_line
from tests.support.shopkeeping import assert_books_balance, let_holds_end, make_sale, pay

pytestmark = pytest.mark.usefixtures("shop_database")

# The base of every control: ann, bob and gus (two units) hold, cat paid, dan's hold expired, eve left the line, fay
# paid late, kim was refunded. %(gus)s is the id of a request, %(gus_no)s the number of its order.


def off(table: str, trigger: str, *statements: str) -> list[str]:
    """Return statements that a trigger would refuse, and what lets them pass; afterwards it is on again.

    The table is locked first: an automatic ANALYZE that has begun waits for a GRANT, and the table's lock for it.
    """
    return [
        "SET CONSTRAINTS ALL IMMEDIATE",
        f"ALTER TABLE {table} DISABLE TRIGGER {trigger}",
        f"GRANT UPDATE, DELETE ON {table} TO CURRENT_USER",
        *statements,
        f"ALTER TABLE {table} ENABLE TRIGGER {trigger}",
        f"REVOKE UPDATE, DELETE ON {table} FROM CURRENT_USER" if table != "shop_order" else "SELECT 1",
    ]


def rewritten_moves(*statements: str) -> list[str]:
    return off("inventory_stockmovement", "movement_rows_never_change", *statements)


def rewritten_orders(*statements: str) -> list[str]:
    return off("shop_order", "order_changes", *statements)


def rewritten_history(*statements: str) -> list[str]:
    return off("shop_orderevent", "event_rows_never_change", *statements)


ORDER = """
INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price, currency,
                        hold_expires_at)
SELECT 'extra-' || number, %(sale_id)s, 'buyer-' || number, 1, 1, 9000000000000000 + number, {state}, '', 1,
       'EUR', now()
FROM generate_series(1, {count}) AS number
"""
MOVE = """
INSERT INTO inventory_stockmovement (stock_id, kind, delta, request_id, actor, reason)
VALUES (%(stock_id)s, {}, 'test', '')
"""
MOVE_EXTRA = """
INSERT INTO inventory_stockmovement (stock_id, kind, delta, request_id, actor, reason)
SELECT %(stock_id)s, 'hold', -1, 'extra-' || number, 'test', '' FROM generate_series(1, {count}) AS number
"""
AGAIN = """
INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price, currency)
SELECT request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price, currency
FROM shop_order WHERE request_id = %(eve)s
"""
LATER_EVENT = "UPDATE shop_orderevent SET id = {} WHERE order_id = %(dan_no)s AND from_state = 'queued'"
SET_ORDER = "UPDATE shop_order SET {} WHERE request_id = {}"
SET_MOVE = "UPDATE inventory_stockmovement SET {} WHERE stock_id = %(stock_id)s AND {}"
SET_PAYMENT = "UPDATE shop_payment SET {} WHERE order_id = {}"
FAR = "id + 1000000000"  # behind everything else
NOT_UNIQUE = "ALTER TABLE inventory_stockmovement DROP CONSTRAINT movement_once_per_request_and_kind"

# Damage: the one invariant that must turn red, what its detail must name, and how it is done.
DAMAGE: dict[str, tuple[str, str, list[str]]] = {
    "two more are held than there are units": (
        "I1",
        "held and sold 8 of 7",
        [
            ORDER.format(state="'held'", count=2),
            MOVE_EXTRA.format(count=2),
            "SET CONSTRAINTS ALL IMMEDIATE",
            "ALTER TABLE inventory_stock DROP CONSTRAINT stock_available_not_negative",
            "ALTER TABLE inventory_stock DROP CONSTRAINT inventory_stock_available_check",
            "UPDATE inventory_stock SET available = available - 2, held = held + 2 WHERE id = %(stock_id)s",
        ],
    ),
    "units taken before they came": ("I1", "{ann}", rewritten_moves(SET_MOVE.format(f"id = {FAR}", "kind = 'load'"))),
    "a delivery that the counters never saw": (
        "I2",
        "ledger says 2 available of 8",
        [MOVE.format("'load', 1, NULL")],
    ),
    "counters that do not add up": (
        "I2",
        "total 8",
        [
            "ALTER TABLE inventory_stock DROP CONSTRAINT stock_every_unit_is_somewhere",
            "UPDATE inventory_stock SET total = total + 1 WHERE id = %(stock_id)s",
        ],
    ),
    "a unit counted as sold that nobody paid": (
        "I2b",
        "orders hold 4",
        ["UPDATE inventory_stock SET held = held - 1, sold = sold + 1 WHERE id = %(stock_id)s"],
    ),
    "units taken twice, a half each time": (
        "I3",
        "{gus}",
        [
            *rewritten_moves(NOT_UNIQUE, SET_MOVE.format("delta = -1", "request_id = %(gus)s")),
            MOVE.format("'hold', -1, %(gus)s"),
        ],
    ),
    "a unit taken again before it was given back": (
        "I3",
        "{fay}",
        rewritten_moves(SET_MOVE.format(f"id = {FAR}", "request_id = %(fay)s AND kind = 'release'")),
    ),
    "units that move for requests nobody made": (
        "I5",
        "ghost",
        [MOVE.format("'hold', -1, 'ghost'"), MOVE.format("'release', 1, 'other ghost'")],
    ),
    "a hold whose units were moved for another": (
        "I5",
        "",  # bob, or the ghost: either tells
        rewritten_moves(SET_MOVE.format("request_id = 'ghost'", "request_id = %(bob)s")),
    ),
    "one buyer with three units where two are allowed": (
        "I7",
        "gus has 3",
        rewritten_orders(SET_ORDER.format("buyer = 'gus'", "%(bob)s")),
    ),
    "one unit more under a lower limit": (
        "I7",
        "bob had 2 of sale %(sale_id)s when extra-1 took 1, the limit was 1",
        [
            ORDER.format(state="'held'", count=1),
            *rewritten_orders(SET_ORDER.format("buyer = 'bob'", "'extra-1'")),
            MOVE_EXTRA.format(count=1),
            "UPDATE inventory_stock SET available = available - 1, held = held + 1 WHERE id = %(stock_id)s",
        ],
    ),
    "three units at once where two are allowed, one of which lapsed": (
        "I7",
        "gus had 3 of sale %(sale_id)s when {dan} took 1, the limit was 2",
        rewritten_orders(SET_ORDER.format("buyer = 'gus'", "%(dan)s")),
    ),
    "an order at another price than its version of the terms": (
        "I23",
        "{ann}",
        [
            *rewritten_orders(SET_ORDER.format("unit_price = unit_price + 1", "%(ann)s")),
            "UPDATE shop_payment p SET amount = o.unit_price * o.quantity FROM shop_order o WHERE o.id = p.order_id",
        ],
    ),
    "a decision before its turn": (
        "I8",
        "{bob}",
        rewritten_orders(SET_ORDER.format("seq = 9000000000000000", "%(ann)s")),
    ),
    "two requests with one place": (
        "I8",
        "{bob}",
        rewritten_orders(SET_ORDER.format("seq = (SELECT seq FROM shop_order WHERE request_id = %(bob)s)", "%(ann)s")),
    ),
    "sold out while a unit is free": (
        "I9",
        "extra-1 wanted 1, 1 were free",
        [ORDER.format(state="'sold_out'", count=1)],
    ),
    "a unit given back that was sold, and taken again": (
        "I10",
        "{cat}",
        [MOVE.format("'release', 1, %(cat)s"), MOVE.format("'retake', -1, %(cat)s")],
    ),
    "a refund whose unit came back as if it had never been sold": (
        "I10",
        "{kim}",
        rewritten_moves(SET_MOVE.format("kind = 'release'", "request_id = %(kim)s AND kind = 'return'")),
    ),
    "a hold past its end": (
        "I11",
        "{ann}",
        [
            SET_ORDER.format(
                "decided_at = decided_at - (hold_expires_at - now() + interval '6 s'), "
                "hold_expires_at = now() - interval '6 s'",
                "%(ann)s",
            )
        ],
    ),
    "a hold that lapsed before its end": (
        "I11",
        "{dan} lapsed 0.100 s before its end",
        [
            "UPDATE shop_order o SET (decided_at, hold_expires_at) = "
            "(o.decided_at + (e.at + interval '0.1 s' - o.hold_expires_at), e.at + interval '0.1 s') "
            "FROM shop_orderevent e WHERE e.order_id = o.id AND e.to_state = 'expired' AND o.request_id = %(dan)s"
        ],
    ),
    "a hold that lapsed before its end and was paid late": (
        "I11",
        "{fay} lapsed",
        [
            "UPDATE shop_order SET decided_at = decided_at + interval '1 h', "
            "hold_expires_at = hold_expires_at + interval '1 h' WHERE request_id = %(fay)s"
        ],
    ),
    "a hold that is shorter than was promised": (
        "I23",
        "{ann}",
        [SET_ORDER.format("hold_expires_at = hold_expires_at - interval '1 s'", "%(ann)s")],
    ),
    "a hold that was restored for a shorter time than was promised": (
        "I23",
        "{ann}",
        [SET_ORDER.format("restored = true, hold_expires_at = hold_expires_at - interval '1 s'", "%(ann)s")],
    ),
    "a hold that was longer than was promised": (
        "I23",
        "{cat}",
        [SET_ORDER.format("hold_expires_at = hold_expires_at + interval '1 s'", "%(cat)s")],
    ),
    "goods without money": ("I12", "{cat}", [SET_PAYMENT.format("state = 'pending'", "%(cat_no)s")]),
    "money for goods that went back": ("I12", "{kim}", [SET_PAYMENT.format("state = 'captured'", "%(kim_no)s")]),
    "money without goods": (
        "I12",
        "{dan}",
        [
            "INSERT INTO shop_payment (order_id, provider, reference, amount, currency, state, reason)"
            " VALUES (%(dan_no)s, 'sandbox', 'paid-for-nothing', 15, 'EUR', 'captured', '')"
        ],
    ),
    "a price that is not the order's": ("I12", "{cat}", [SET_PAYMENT.format("amount = 1", "%(cat_no)s")]),
    "money that is owed for too long": (
        "I12",
        "{kim}",
        [SET_PAYMENT.format("state = 'refund_due', changed_at = now() - interval '61 s'", "%(kim_no)s")],
    ),
    "a payment that its provider never answered": (
        "I24",
        "{dan}",
        [
            "INSERT INTO shop_payment (order_id, provider, reference, amount, currency, state, reason, created_at)"
            " VALUES (%(dan_no)s, 'sandbox', 'unanswered', 15, 'EUR', 'pending', '', now() - interval '121 hours')"
        ],
    ),
    "a state that no history led to": (
        "I13",
        "{eve}",
        rewritten_orders(SET_ORDER.format("state = 'refused'", "%(eve)s")),
    ),
    "a history in the wrong order": (
        "I13",
        "{dan}",
        rewritten_history(LATER_EVENT.format(FAR)),
    ),
    "an order without history": (
        "I13",
        "{eve}",
        rewritten_history("DELETE FROM shop_orderevent WHERE order_id = %(eve_no)s"),
    ),
    "a request with two orders": (
        "I14",
        "{eve} has more than one",
        [
            "ALTER TABLE shop_order DROP CONSTRAINT order_once_per_request",
            AGAIN,
            *rewritten_history(
                "DELETE FROM shop_orderevent"
                " WHERE order_id = (SELECT max(id) FROM shop_order WHERE request_id = %(eve)s)"
            ),
        ],
    ),
    "a movement under an older fence": (
        "I16",
        "{kim}",
        rewritten_moves(SET_MOVE.format("fence = 1", "request_id = %(kim)s AND kind = 'hold'")),
    ),
    "a movement under a fence the stock never saw": (
        "I16",
        "the stock has seen",
        rewritten_moves(SET_MOVE.format("fence = fence + 1", "request_id = %(cat)s AND kind = 'hold'")),
    ),
    "a delivery that nobody signed": ("I20", "load", rewritten_moves(SET_MOVE.format("actor = ''", "kind = 'load'"))),
    "an adjustment without a reason": (
        "I20",
        "adjust",
        [
            MOVE.format("'adjust', 1, NULL"),
            "UPDATE inventory_stock SET total = total + 1, available = available + 1 WHERE id = %(stock_id)s",
        ],
    ),
    "movements that can be rewritten": (
        "I20",
        "movement_rows_never_change",
        ["ALTER TABLE inventory_stockmovement DISABLE TRIGGER movement_rows_never_change"],
    ),
    "orders that may go any way": (
        "I20",
        "order_changes",
        ["ALTER TABLE shop_order DISABLE TRIGGER order_changes"],
    ),
    "terms that can be rewritten": (
        "I20",
        "terms_never_change",
        ["ALTER TABLE shop_saleterms DISABLE TRIGGER terms_never_change"],
    ),
    "a right that the program should not have": (
        "I20",
        "shop_orderevent",
        ["GRANT UPDATE ON shop_orderevent TO CURRENT_USER"],
    ),
}


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale of seven units whose buyers stand in every state; four are held, two sold, one is free."""
    made = make_sale(new_sku(), units=7, limit=2)
    queue(made, "ann", "bob")
    admit(made, ask(made, "gus", quantity=2))
    (eve,) = queue(made, "eve")
    holds.cancel(eve, buyer="eve")
    for buyer, end in (("dan", expire), ("fay", pay_late), ("kim", pay_and_return), ("cat", pay)):
        (name,) = queue(made, buyer)
        settle_line(made)
        end(name)
    return made


def lapse_early(name: str, *, actor: str = "expirer", state: State = State.EXPIRED) -> None:
    """End a hold long before its time, as no program does but the one that brings back what ended before a restore."""
    sku = Order.objects.select_related("sale__stock").get(request_id=name).sale.stock.sku
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.end_holds(
            cursor, sku=sku, request_ids=[name], state=state, actor=actor, reason="a test", due_only=False
        )
    holds.publish(changes)


def expire(name: str) -> None:
    """Let a hold end unpaid."""
    let_holds_end(name)
    sku = Order.objects.select_related("sale__stock").get(request_id=name).sale.stock.sku
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.expire_due(cursor, sku=sku, request_ids=[name])
    assert [each.request_id for each in changes.changed] == [name]
    holds.publish(changes)


def pay_late(name: str) -> None:
    """Let a hold end, and its payment come after."""
    payment = notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")
    expire(name)
    notice = Notice(payment.reference, "captured", payment.reference, payment.amount, payment.currency)
    assert notices.take_notice(notice, provider_name="sandbox") == "paid"


def pay_and_return(name: str) -> None:
    """Pay, and get the money back."""
    pay(name)
    refunds.refund_order(name, actor="staff", reason="sent back")
    Payment.objects.filter(order__request_id=name).update(state="refunded")  # what the provider would tell us


def broken_after(card: SaleCard, damage: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Do `damage` in a transaction that is rolled back; return what the audit said of it by id, and the names used."""
    scope = scope_of(Sale.objects.select_related("stock").get(pk=card.sale_id))
    orders = list(Order.objects.filter(sale_id=card.sale_id).values_list("buyer", "request_id", "pk"))
    names = {buyer: name for buyer, name, _ in orders}
    values = {"stock_id": scope.stock_id, "sale_id": scope.sale_id} | names | {f"{who}_no": no for who, _, no in orders}
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in damage:
            cursor.execute(statement, values)
        found = read_books(cursor, scope).findings
        transaction.set_rollback(True)
    return {each.id: each.detail for each in found if not each.ok}, names


def test_a_sale_in_every_state_is_clean(card: SaleCard) -> None:
    """The control of the controls: without damage nothing is found, and every count is right."""
    assert broken_after(card, [])[0] == {}
    counts = assert_books_balance(card)
    words = ("held", "paid", "expired", "cancelled", "refunded", "refused", "sold_out")
    assert {word: counts[f"orders_{word}"] for word in words} == {
        "held": 3, "paid": 2, "expired": 1, "cancelled": 1, "refunded": 1, "refused": 0, "sold_out": 0
    }  # fmt: skip
    names = ("total", "available", "held", "sold", "decided", "units_held", "admitted", "queued", "waitlisted")
    assert [counts[name] for name in names] == [7, 1, 4, 2, 8, 4, 8, 0, 0]


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_to_the_books_is_named(card: SaleCard, what: str) -> None:
    number, culprit, damage = DAMAGE[what]
    found, names = broken_after(card, damage)
    assert list(found) == [number], found
    assert culprit.format(**names).replace("%(sale_id)s", str(card.sale_id)) in found[number]
    assert audit_sale(card.slug)["ok"]  # the damage was rolled back


@pytest.mark.parametrize(
    ("actor", "state", "expected"),
    [
        ("expirer", State.EXPIRED, ["I11"]),
        (AFTER_RESTORE, State.EXPIRED, []),
        ("buyer", State.CANCELLED, []),
        ("staff", State.CANCELLED, []),
    ],
    ids=["lapsed", "brought back as lapsed", "given up", "cancelled by staff"],
)
def test_a_hold_may_be_given_up_before_its_end_but_not_lapse(
    card: SaleCard, actor: str, state: State, expected: list[str]
) -> None:
    ann = Order.objects.get(sale_id=card.sale_id, buyer="ann").request_id
    lapse_early(ann, actor=actor, state=state)
    assert [each["id"] for each in audit_sale(card.slug)["invariants"] if not each["ok"]] == expected


def test_what_came_back_after_a_restore_breaks_no_limit(card: SaleCard) -> None:
    """What had ended is brought back as held, alongside what its buyer took afterwards, and ended again."""
    lapsed = DAMAGE["three units at once where two are allowed, one of which lapsed"][2]
    restored = rewritten_history(
        f"UPDATE shop_orderevent SET actor = '{AFTER_RESTORE}' WHERE order_id = %(dan_no)s"  # noqa: S608
    )
    assert broken_after(card, [*lapsed, *restored])[0] == {}


def test_every_invariant_of_the_database_has_its_control(card: SaleCard) -> None:
    scope = scope_of(Sale.objects.select_related("stock").get(pk=card.sale_id))
    with transaction.atomic(), connection.cursor() as cursor:
        known = {each.id for each in read_books(cursor, scope).findings}
    assert {number for number, _, _ in DAMAGE.values()} == known


def test_the_report_names_every_invariant_but_the_load_test_s(card: SaleCard) -> None:
    numbers = [each["id"] for each in audit_sale(card.slug)["invariants"]]
    assert numbers == [
        "I1", "I2", "I2b", "I3", "I4", "I5", "I5b", *(f"I{number}" for number in range(6, 22)), "I23", "I24",
    ]  # fmt: skip
