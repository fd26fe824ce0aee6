"""Brings charges that providers collected since the backup into a restored database: a payment that was lost gets its
row again, and what it paid for is settled. Never takes more than a provider says, never pays for an order that no
record and no row knows: that is for a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection, transaction
from django.urls import Resolver404, resolve

from inventory import ledger
from inventory.exceptions import LineNotTold, RedisUnavailable, Unavailable
from inventory.fault_injection import fault_point
from inventory.states import AFTER_RESTORE, Reason, State
from shop.models import Payment, StaffAct
from shop.orders import holds
from shop.orders.numbers import order_number
from shop.payments import notices, refunds, rows
from shop.payments.losses import Loss
from shop.payments.providers import Collected, Notice, provider
from shop.staff.lists.order_acts import ON_ORDERS

PAGE = 1_000
# What a payment may be, by what its provider said last of it: then there is nothing to bring in. Of one that was given
# back and is called captured, the refund may have failed: it is looked at.
SETTLED = {
    "captured": {Payment.State.CAPTURED, Payment.State.REFUND_DUE},
    "declined": {Payment.State.DECLINED},
    "refunded": {Payment.State.REFUNDED},
}
MAKE_ROWS = """
INSERT INTO shop_payment
    (order_id, provider, reference, amount, currency, state, reason, card, created_at, changed_at)
SELECT o.id, %(provider)s, t.reference, o.unit_price * o.quantity, o.currency, 'pending', '', t.card, t.begun_at,
       clock_timestamp()
FROM unnest(%(references)s::text[], %(request_ids)s::text[], %(cards)s::text[], %(moments)s::timestamptz[])
    AS t (reference, request_id, card, begun_at)
JOIN shop_order o USING (request_id)
ON CONFLICT (reference) DO NOTHING
"""
# As rows.CAPTURE does for one: payments whose order is held, of the amount that was due.
CAPTURE_MANY = """
WITH told AS (
    SELECT * FROM unnest(%(references)s::text[], %(amounts)s::numeric[], %(currencies)s::text[])
        AS t (reference, amount, currency)
), open_ones AS (
    SELECT DISTINCT ON (p.order_id) p.id, p.order_id
    FROM shop_payment p JOIN told t USING (reference, amount, currency)
    WHERE p.provider = %(provider)s AND p.state IN ('pending', 'declined') ORDER BY p.order_id, p.id
), sold AS (
    UPDATE shop_order o SET state = 'paid', actor = %(actor)s, reason = %(reason)s, changed_at = clock_timestamp()
    FROM open_ones WHERE o.id = open_ones.order_id AND o.state = 'held' RETURNING o.id, o.request_id, o.quantity
), captured AS (
    UPDATE shop_payment p SET state = 'captured', reason = %(reason)s, changed_at = clock_timestamp()
    FROM open_ones JOIN sold ON sold.id = open_ones.order_id WHERE p.id = open_ones.id
)
SELECT request_id, quantity FROM sold
"""


class _Known(NamedTuple):
    """What the database says of a charge, once its payment has a row."""

    charge: Collected
    state: str
    sku: str
    order_state: State


def settle_charges(since: datetime) -> None:
    """Bring in what every provider collected since a moment. The same again changes nothing.

    A provider that does not answer is passed over: find_unknown names it. Raises RedisUnavailable.
    """
    for name in settings.PAYMENT_PROVIDERS:
        with suppress(Unavailable):
            for page in _pages(name, since):
                _settle_page(page, provider_name=name)


def find_unknown(since: datetime) -> list[Loss]:
    """Return every charge collected since a moment that no payment of the database is about."""
    losses: list[Loss] = []
    for name in settings.PAYMENT_PROVIDERS:
        try:
            for page in _pages(name, since):
                losses += _without_rows(page, provider_name=name)
        except Unavailable:
            losses.append(Loss("provider_away", "", name, "", 0, "what it collected was not compared"))
    return losses


def _pages(provider_name: str, since: datetime) -> Iterator[list[Collected]]:
    found = iter(provider(provider_name).collected_since(since))
    while page := list(islice(found, PAGE)):
        yield page


def request_of(address: str) -> str:
    """Return the request whose ticket has this address, '' when it is none."""
    try:
        found = resolve(urlsplit(address).path)
    except Resolver404:
        return ""
    return str(found.kwargs["request_id"]) if found.url_name == "ticket" else ""


def _settle_page(page: Sequence[Collected], *, provider_name: str) -> None:
    _make_rows(page, provider_name=provider_name)
    fault_point("in_charges")
    known = [each for each in _read(page) if each.state not in SETTLED[each.charge.notice.kind]]
    simple = [each for each in known if each.charge.notice.kind == "captured" and each.order_state is State.HELD]
    for sku in sorted({each.sku for each in simple}):
        _capture_many([each.charge for each in simple if each.sku == sku], sku=sku, provider_name=provider_name)
    for each in _read([each.charge for each in known]):
        if each.state not in SETTLED[each.charge.notice.kind]:
            _take(each, provider_name=provider_name)


def _lost(page: Sequence[Collected]) -> dict[Collected, str]:
    """Return the charges whose payment has no row, each with the request that it names."""
    references = [each.notice.reference for each in page]
    there = set(Payment.objects.filter(reference__in=references).values_list("reference", flat=True))
    return {each: request_of(each.return_url) for each in page if each.notice.reference not in there}


def _make_rows(page: Sequence[Collected], *, provider_name: str) -> None:
    """Give each payment that was lost its row again, if its order is there."""
    lost = _lost(page)
    values: dict[str, Any] = {
        "provider": provider_name,
        "references": [each.notice.reference for each in lost],
        "request_ids": list(lost.values()),
        "cards": [each.notice.card for each in lost],
        "moments": [each.begun_at for each in lost],
    }
    with connection.cursor() as cursor:
        cursor.execute(MAKE_ROWS, values)


def _without_rows(page: Sequence[Collected], *, provider_name: str) -> Iterator[Loss]:
    for each, name in _lost(page).items():
        notice = each.notice
        if notice.kind == "captured":
            text = (
                f"{provider_name} collected {notice.amount} {notice.currency} for {name or 'no request of this shop'}"
            )
            yield Loss("charge_unknown", "", notice.reference, "", 0, f"{text}, and the database has no such payment")


def _read(charges: Iterable[Collected]) -> Iterator[_Known]:
    by_name = {each.notice.reference: each for each in charges}
    columns = ("reference", "state", "order__sale__stock__sku", "order__state")
    for reference, state, sku, order_state in Payment.objects.filter(reference__in=by_name).values_list(*columns):
        yield _Known(by_name[reference], state, sku, State(order_state))


def _capture_many(charges: Sequence[Collected], *, sku: str, provider_name: str) -> None:
    """Let captured money pay holds, a page in one transaction; what it cannot pay so is looked at one by one."""
    told = [each.notice for each in charges]
    values: dict[str, Any] = {
        "references": [notice.reference for notice in told],
        "amounts": [notice.amount for notice in told],
        "currencies": [notice.currency for notice in told],
        "provider": provider_name,
        "actor": AFTER_RESTORE,
        "reason": Reason.BROUGHT_BACK.value,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        stock = ledger.lock_stock(cursor, sku=sku)
        cursor.execute(CAPTURE_MANY, values)
        sold = cursor.fetchall()
        if not sold:
            return
        figures = ledger.sell_units(cursor, stock_id=stock.stock_id, units=sum(units for _, units in sold))
        changed = holds.records_now(cursor, [name for name, _ in sold])
    with suppress(LineNotTold):  # told again at the end
        holds.publish(holds.Changes(sku, figures, changed))


def _take(known: _Known, *, provider_name: str) -> None:
    """Bring one charge in as its notice would be; one that ended here and was given back shows it."""
    notice = known.charge.notice
    if notice.kind == "refunded" and known.order_state is State.EXPIRED:
        _note_refund(notice.reference, sku=known.sku)
        return
    if notice.kind == "captured" and known.state == Payment.State.REFUNDED:
        _owe_again(notice, sku=known.sku)
        return
    with suppress(LineNotTold, RedisUnavailable):
        notices.take_notice(notice, provider_name=provider_name)


def _note_refund(reference: str, *, sku: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        ledger.lock_stock(cursor, sku=sku)
        found = rows.lock(cursor, reference)
        if found.state is State.EXPIRED:
            why = Reason.REFUNDED_BY_PROVIDER
            rows.change_payment(cursor, reference, Payment.State.REFUNDED, reason=why)
            rows.change_order(cursor, found, State.REFUNDED, actor=AFTER_RESTORE, reason=why)


def _owe_again(notice: Notice, *, sku: str) -> None:
    """Owe money that its provider has again, because its refund failed; not what it never had to give back."""
    with transaction.atomic(), connection.cursor() as cursor:
        ledger.lock_stock(cursor, sku=sku)
        payment = Payment.objects.select_related("order").get(reference=notice.reference)
        number = order_number(payment.order_id)
        acts = StaffAct.objects.filter(sale=payment.order.sale_id, act=f"sent{ON_ORDERS}", detail=number)
        was_sent = acts.filter(reason=payment.reason).exists()
        if notice.amount and payment.reason != Reason.TAKEN_BY_BANK and not was_sent:
            refunds.owe_again(notice)
