"""Makes sales and looks into the books the way every suite needs it. Never starts a process.
Works on the stores that the environment names, or, inside `shop_of`, on those of an extra shop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import environ
from django.db import connection, connections, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.test.utils import override_settings
from django.utils import timezone

from inventory import redis
from inventory.audit.run import Scope, audit
from inventory.ledger import load_stock
from inventory.line import admission
from inventory.models import Stock
from inventory.records import request_id
from inventory.redis import keys
from shop.models import LAST_CAPTURE, STILL_ASKED_ABOUT, Order, Payment, Product, Sale
from shop.payments import notices
from shop.payments.providers import Notice
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control

ACTOR = "test"
# How far beyond the stock a sale's line may grow when a test does not say.
LINE_CAPACITY = 200


def make_sale(
    sku: str,
    *,
    units: int,
    limit: int = 1,
    line_capacity: int | None = None,
    opens_in_seconds: float = -5,
    closes_in_seconds: float = 3600,
    hold_seconds: int = 600,
    operator_state: str = "on",
    network_limit: int | None = 0,
    pass_mode: str = "never",  # noqa: S107
    email_mode: str = "never",
) -> SaleCard:
    """Make a sale of `units` new units of `sku`, put it into Redis, and return it; seconds count from now.

    network_limit: 0, because all buyers of a test come from this machine; None: as the shop's default is.
    """
    now = timezone.now()
    with transaction.atomic():
        with connection.cursor() as cursor:
            stock_id = load_stock(cursor, sku=sku, units=units, actor=ACTOR, reason="first delivery")
        product = Product.objects.create(slug=sku, title="Paper kite", list_price=Decimal("20.00"), stock_id=stock_id)
        sale = Sale.objects.create(
            slug=f"{sku}-drop",
            product=product,
            stock_id=stock_id,
            title="Paper kite",
            price=Decimal("15.00"),
            opens_at=now + timedelta(seconds=opens_in_seconds),
            closes_at=now + timedelta(seconds=closes_in_seconds),
            per_buyer_limit=limit,
            hold_seconds=hold_seconds,
            line_capacity=LINE_CAPACITY if line_capacity is None else line_capacity,
            operator_state=operator_state,
            per_network_limit=network_limit,
            pass_mode=pass_mode,
            email_mode=email_mode,
        )
    priming.prime_sale(sale.slug)
    return catalogue.find_sale(sale.slug)


def put_away(skus: list[str]) -> None:
    """Leave no work of these SKUs for workers of later tests, which look at every SKU: no key, no sale, no due hold.

    No payment either that a provider is asked about, or that counts as open for a buyer of the same name. SKUs that a
    test named after one of these, as "name-1", go with it. The list is empty afterwards.
    """
    client = redis.connect()
    for sku in list(skus):
        skus += Stock.objects.filter(sku__startswith=f"{sku}-").values_list("sku", flat=True)
    sales = Sale.objects.filter(stock__sku__in=skus)
    sales.filter(retired_at=None).update(retired_at=timezone.now())
    # Only now: a web process may prime a sale that is not retired.
    for sku in skus:
        redis.run_commands(client, [("UNLINK", *keys.all_of(sku)), ("SREM", keys.skus(), sku)])
    later = timezone.now() + timedelta(days=365)
    Order.objects.filter(sale__in=sales, state="held", hold_expires_at__lt=later).update(hold_expires_at=later)
    open_ones = Payment.objects.filter(STILL_ASKED_ABOUT | Q(state="refund_due"), order__sale__in=sales)
    open_ones.update(state="declined", created_at=Now() - 2 * LAST_CAPTURE, changed_at=Now())
    skus.clear()


def audit_of(card: SaleCard) -> dict[str, Any]:
    """Return the audit of a sale: {ok, invariants, counts}."""
    stock_id = Sale.objects.only("stock_id").get(pk=card.sale_id).stock_id
    return audit(Scope(sku=card.sku, stock_id=stock_id, sale_id=card.sale_id))


def assert_books_balance(card: SaleCard) -> dict[str, Any]:
    """Fail with the broken invariants unless the audit is clean; return its counts."""
    report = audit_of(card)
    assert report["ok"], [each for each in report["invariants"] if not each["ok"]]
    return report["counts"]


def fill_line(card: SaleCard, *, buyers: int, quantity: int = 1, named: str = "buyer") -> list[str]:
    """Let `buyers` new buyers ask in the line without HTTP; return their request ids in the order of the line."""
    names = [f"{named}-{number:07d}" for number in range(buyers)]
    asks = [
        admission.Ask(
            request_id(sale_id=card.sale_id, request_key=card.request_id_key(), buyer=name, idempotency_key=""),
            name,
            quantity,
        )
        for name in names
    ]
    line = admission.SaleLine(card.sale_id, card.sku)
    for start in range(0, len(asks), admission.MAX_PER_CALL):
        answers = admission.admit(redis.connect(), line, asks[start : start + admission.MAX_PER_CALL])
        assert {answer.code for answer in answers} == {admission.Code.ADMITTED}
    return [ask.request_id for ask in asks]


def pay(*request_ids: str) -> None:
    """Pay for held orders, as a provider's notice would."""
    for name in request_ids:
        payment = notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")
        notice = Notice(payment.reference, "captured", payment.reference, payment.amount, payment.currency)
        assert notices.take_notice(notice, provider_name="sandbox") == "paid"


def pay_all(card: SaleCard) -> list[str]:
    """Pay for everything that is held of a sale; return the request ids."""
    names = list(Order.objects.filter(sale_id=card.sale_id, state="held").values_list("request_id", flat=True))
    pay(*names)
    return names


def close_sale(card: SaleCard) -> None:
    """End a sale now: who is in line gets what is free, and nobody waits for a unit to come back."""
    sale_control.close(card.slug, actor=ACTOR)


def let_holds_end(*request_ids: str, seconds_ago: float = 0.001) -> None:
    """Let so much time have passed since holds began that they are over; nobody has ended them yet.

    One that somebody ends in this moment stays as it is: its end would be moved behind the moment in its history.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE shop_order
               SET hold_expires_at = past.moment,
                   decided_at = decided_at - coalesce(hold_expires_at - past.moment, interval '0')
               FROM (SELECT clock_timestamp() - make_interval(secs => %s) AS moment) AS past
               WHERE request_id = ANY(%s) AND state = 'held'""",
            [seconds_ago, list(request_ids)],
        )


def rewrite(request_id: str, /, **fields: Any) -> None:
    """Change an order as no program may: the trigger that refuses it is off for this one statement."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_order DISABLE TRIGGER order_changes")
        Order.objects.filter(request_id=request_id).update(**fields)
        cursor.execute("ALTER TABLE shop_order ENABLE TRIGGER order_changes")


def decided_count(card: SaleCard) -> int:
    """Return how many requests of a sale the database has decided."""
    return Order.objects.filter(sale_id=card.sale_id).count()


@contextmanager
def shop_of(environment: Mapping[str, str]) -> Iterator[None]:
    """Let this process work on the database and the line that `environment` names, for the length of a block."""
    default = connections["default"]
    before = dict(default.settings_dict)
    default.close()
    default.settings_dict.update(environ.Env.db_url_config(environment["DATABASE_URL"]))
    try:
        with override_settings(REDIS_URL=environment["REDIS_URL"]):
            yield
    finally:
        default.close()
        default.settings_dict.update(before)
