"""What was kept long enough goes, and nothing else: each kind has a control that is a little younger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.core.cache import caches
from django.db import DatabaseError, connection, models, transaction
from django.db.models.functions import Now
from django.utils import timezone
from post_office.models import STATUS, Email, Log

from inventory.exceptions import RequestNotFound
from inventory.postgres import AdvisoryLock
from inventory.records import Ticket
from loadtest.verify.verify_sale import Verifier
from shop.models import Order, Payment, PaymentNotice, Sale, StaffAct
from shop.orders.personal_data import FORGOTTEN
from shop.orders.restoring import restore
from shop.payments import notices
from shop.sales.catalogue import SaleCard
from shop.staff import retiring
from shop.stripe.models import CheckoutSession
from shop.tickets.signing import holder_of, sign_tickets
from tests.support import road
from tests.support.sale_logs import checked, publish, verifier_of
from tests.support.shopkeeping import assert_books_balance, close_sale, make_sale, pay
from workers.reconciler import retention
from workers.reconciler.retention import Retention

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=4, limit=3)


def retain() -> int:
    """Make one pass; return how many rows that were."""
    one, rows = Retention(), 0
    while done := one.work_once():
        rows += done
    return rows


def ends(card: SaleCard, *, days: float) -> None:
    """Let a sale have ended so many days ago."""
    ended = timezone.now() - timedelta(days=days)
    Sale.objects.filter(pk=card.sale_id).update(opens_at=ended - timedelta(hours=1), closes_at=ended)


def bought(card: SaleCard, *buyers: str) -> list[str]:
    """Let each buyer buy a unit, in public, and the sale end; return the ids of the requests."""
    names = road.queue(card, *buyers)
    publish()
    road.settle_line(card)
    pay(*names)
    close_sale(card)
    road.settle_line(card)
    retiring.retire(card.slug, actor="anna")
    return names


def buyers_of(card: SaleCard) -> list[str]:
    return list(Order.objects.filter(sale_id=card.sale_id).order_by("pk").values_list("buyer", flat=True))


def act_of(actor: str, *, days: float, sale_id: int | None = None) -> StaffAct:
    """Write an act that was done so many days ago."""
    ago = timezone.now() - timedelta(days=days)
    return StaffAct.objects.create(sale_id=sale_id, act="login", actor=actor, at=ago)


@pytest.mark.parametrize(("days", "is_kept"), [(399, True), (401, False)])
def test_orders_of_a_past_sale_name_nobody_after_their_time(
    card: SaleCard, settings: Any, days: int, *, is_kept: bool
) -> None:
    settings.KEEP_ORDERS_DAYS = 400
    before = [f"ada-{card.sku}", f"bob-{card.sku}", f"ada-{card.sku}"]
    first, second = road.queue(card, *before[:2])
    third = road.ask(card, before[2], key="again")
    road.admit(card, third)
    road.settle_line(card)
    pay(first, second, third.request_id)
    close_sale(card)
    road.settle_line(card)
    retiring.retire(card.slug, actor="anna")
    ends(card, days=days)
    assert_books_balance(card)
    retain()
    after = buyers_of(card)
    assert (after == before) is is_kept
    assert (Sale.objects.get(pk=card.sale_id).buyers_forgotten_at is None) is is_kept
    assert after[0] == after[2] != after[1]  # the audit goes on to see who had more than the limit
    assert is_kept or {name.startswith(FORGOTTEN) for name in after} == {True}
    assert_books_balance(card)


def test_a_sale_that_is_not_retired_keeps_its_buyers(card: SaleCard, settings: Any) -> None:
    settings.KEEP_ORDERS_DAYS = 30
    road.queue(card, "ann")
    road.settle_line(card)
    ends(card, days=50)
    retain()
    assert buyers_of(card) == ["ann"]


@pytest.mark.parametrize(("days", "is_kept"), [(399, True), (401, False)])
def test_pseudonyms_of_a_past_sale_cannot_be_made_again_after_their_time(
    card: SaleCard, settings: Any, days: int, *, is_kept: bool
) -> None:
    """The log stays as it is, and holds by every rule before and after. The control: a sale a little younger."""
    settings.KEEP_ORDERS_DAYS = 400
    buyers = [f"ada-{card.sku}", f"bob-{card.sku}"]
    bought(card, *buyers)
    ends(card, days=days)
    before = checked(card)
    published = [holder for holder, _ in holders_of(before)]
    assert [holder_of(card.request_id_key(), buyer) for buyer in buyers] == published
    retain()
    after = verifier_of(card, kept=before.kept)
    assert (after.replay.faults, holders_of(after)) == ({}, holders_of(before))
    key = Sale.objects.get(pk=card.sale_id).request_key.encode()
    assert len(key) == len(card.request_id_key())
    made = [holder_of(key, buyer) for buyer in buyers]
    assert (set(made) & set(published) == set(published)) is is_kept
    assert (set(made).isdisjoint(published)) is not is_kept


def holders_of(verifier: Verifier) -> list[tuple[str, str]]:
    """Return who stands at each place of a log, and what became of them."""
    return [(str(place["holder"]), str(place["state"])) for place in verifier.replay.places.values()]


def test_a_ticket_of_a_sale_whose_key_is_destroyed_is_nobodys(card: SaleCard, settings: Any) -> None:
    """The control: until then it is its buyer's."""
    settings.KEEP_ORDERS_DAYS = 30
    buyer = f"ada-{card.sku}"
    (name,) = bought(card, buyer)
    order = Order.objects.get(request_id=name)
    place = Ticket(name, buyer, 1, order.seq, order.terms_version or 0, order.ordinal or 0)
    (ticket,) = sign_tickets([place], slug=card.slug, request_key=card.request_id_key())
    assert restore(ticket, buyer=buyer)[0].request_id == name
    ends(card, days=50)
    retain()
    with pytest.raises(RequestNotFound):
        restore(ticket, buyer=buyer)


def test_many_buyers_go_in_steps_and_those_of_the_next_sale_after_them(
    card: SaleCard, new_sku: Callable[[], str], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its process died after the first step: another begins again, and what was done stays as it is."""
    settings.KEEP_ORDERS_DAYS = 30
    monkeypatch.setattr(retention, "MAX_DELETED", 2)
    other = make_sale(new_sku(), units=1)
    for sale in (card, other):
        bought(sale, *[f"buyer-{number}-{sale.sku}" for number in range(3 if sale is card else 1)])
        ends(sale, days=50)
    retain_once = Retention()
    while not [each for each in buyers_of(card) if each.startswith(FORGOTTEN)]:
        retain_once.work_once()
    first = buyers_of(card)
    assert len([each for each in first if each.startswith(FORGOTTEN)]) == 2
    retain()
    assert [each.startswith(FORGOTTEN) for each in [*buyers_of(card), *buyers_of(other)]] == [True] * 4
    assert [each for each in first if each.startswith(FORGOTTEN)] == [
        now for was, now in zip(first, buyers_of(card), strict=True) if was.startswith(FORGOTTEN)
    ]
    for sale in (card, other):
        assert_books_balance(sale)


def test_mails_go_with_what_the_mailer_noted_of_them(settings: Any) -> None:
    settings.KEEP_MAILS_DAYS = 3
    old, young = (
        Email.objects.create(to=[f"{name}@shop.example"], from_email="shop@shop.example", status=STATUS.sent)
        for name in ("old", "young")
    )
    for each, days in ((old, 4), (young, 2)):
        Log.objects.create(email=each, status=STATUS.sent)
        Email.objects.filter(pk=each.pk).update(created=timezone.now() - timedelta(days=days))
    retain()
    assert set(Email.objects.filter(pk__in=[old.pk, young.pk])) == {young}
    assert set(Log.objects.filter(email_id__in=[old.pk, young.pk]).values_list("email_id", flat=True)) == {young.pk}


def test_what_leads_to_a_provider_goes_with_its_time(card: SaleCard, settings: Any) -> None:
    """The controls: a payment that is younger, and an old one that the provider is still asked about."""
    settings.KEEP_ORDERS_DAYS = 400
    road.queue(card, "ann", "bob", "cleo")
    road.settle_line(card)
    orders = Order.objects.filter(sale_id=card.sale_id).order_by("pk")
    old, young, open_still = (notices.begin(each, provider_name="sandbox") for each in orders)
    for payment, days in ((old, 401), (young, 399), (open_still, 401)):
        moment = timezone.now() - timedelta(days=days)
        state = "pending" if payment is open_still else "declined"
        Payment.objects.filter(pk=payment.pk).update(created_at=moment, state=state)
        CheckoutSession.objects.create(reference=payment.reference, session_id=f"cs_{payment.pk}")
        name = payment.reference
        PaymentNotice.objects.create(provider="stripe", event_id=name, kind="paid", reference=name, result="done")
        PaymentNotice.objects.filter(reference=name).update(received_at=moment)
    retain()
    references = [each.reference for each in (old, young, open_still)]
    kept = CheckoutSession.objects.filter(reference__in=references)
    assert set(kept.values_list("reference", flat=True)) == {young.reference, open_still.reference}
    assert PaymentNotice.objects.filter(reference__in=references).get().reference == young.reference
    assert Payment.objects.filter(pk__in=[old.pk, young.pk, open_still.pk]).count() == 3
    Payment.objects.filter(pk=open_still.pk).update(state="declined")


def test_acts_of_staff_go_with_their_time_and_those_of_sales_that_go_on_stay(card: SaleCard, settings: Any) -> None:
    settings.KEEP_ACTS_DAYS = 100
    user = get_user_model().objects.create(username=f"staff-{card.sku}")
    kind = ContentType.objects.get_for_model(Sale)
    acts, changes = [], []
    for sale_id, days in ((None, 101), (None, 99), (card.sale_id, 101)):
        acts.append(act_of(card.sku, days=days, sale_id=sale_id))
        changes.append(LogEntry.objects.create(user=user, content_type=kind, object_repr=card.sku, action_flag=CHANGE))
        LogEntry.objects.filter(pk=changes[-1].pk).update(action_time=timezone.now() - timedelta(days=days))
    retain()
    assert set(StaffAct.objects.filter(actor=card.sku)) == set(acts[1:])
    assert set(LogEntry.objects.filter(object_repr=card.sku)) == {changes[1]}
    assert_books_balance(card)  # with the guards of the log of acts
    close_sale(card)
    retiring.retire(card.slug, actor="anna")
    retain()
    assert set(StaffAct.objects.filter(actor=card.sku)) == {acts[1]}


def test_old_acts_go_while_every_other_advisory_lock_is_held(card: SaleCard, settings: Any) -> None:
    """The control is the lock of this duty itself."""
    settings.KEEP_ACTS_DAYS = 100
    act = act_of(card.sku, days=101)
    with road.own_connection() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [AdvisoryLock.OLD_ACTS])
        retain()
        assert StaffAct.objects.filter(pk=act.pk).exists()
        other.execute("SELECT pg_advisory_unlock_all()")
        for lock in set(AdvisoryLock) - {AdvisoryLock.OLD_ACTS}:
            other.execute("SELECT pg_advisory_lock(%s)", [lock])
        retain()
    assert not StaffAct.objects.filter(pk=act.pk).exists()


def as_owner(statement: str, act: StaffAct, *, says: str = "") -> int:
    """Do as an owner of the table would who gives all rights back to itself; return how many rows changed."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("GRANT UPDATE, DELETE ON shop_staffact TO CURRENT_USER")
        cursor.execute("SELECT set_config('fairdrop.retention', %s, true)", [says])
        cursor.execute(f"{statement} WHERE id = %s", [act.pk])
        transaction.set_rollback(True)
        return cursor.rowcount


def test_no_act_is_deleted_in_another_way(card: SaleCard) -> None:
    """The control is the last line: by age alone it may go."""
    young, old = act_of(card.sku, days=29), act_of(card.sku, days=31)
    with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
        old.delete()
    with pytest.raises(DatabaseError, match="DELETE refused"):
        as_owner("DELETE FROM shop_staffact", old)
    with pytest.raises(DatabaseError, match="DELETE refused"):
        as_owner("DELETE FROM shop_staffact", young, says="on")
    with pytest.raises(DatabaseError, match="UPDATE refused"):
        as_owner("UPDATE shop_staffact SET actor = ''", old, says="on")
    assert as_owner("DELETE FROM shop_staffact", old, says="on") == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT shop_forget_acts(1, 1000)")  # a month is the least
    assert set(StaffAct.objects.filter(actor=card.sku)) == {young}


def test_sessions_and_failed_logins_go_when_they_count_no_more(card: SaleCard) -> None:
    for name, hours in ((f"{card.sku}-over", -1), (f"{card.sku}-goes-on", 1)):
        Session.objects.create(session_key=name, session_data="", expire_date=timezone.now() + timedelta(hours=hours))
        caches["logins"].set(name, 1, timeout=hours * 3600 if hours > 0 else 3600)
    with connection.cursor() as cursor:
        ago = timezone.now() - timedelta(hours=1)
        cursor.execute("UPDATE shop_failed_logins SET expires = %s WHERE cache_key LIKE '%%-over'", [ago])
    retain()
    assert [each.session_key for each in Session.objects.filter(session_key__startswith=card.sku)] == [
        f"{card.sku}-goes-on"
    ]
    with connection.cursor() as cursor:
        cursor.execute("SELECT cache_key FROM shop_failed_logins WHERE cache_key LIKE %s", [f"%{card.sku}%"])
        assert [name.rpartition(":")[2] for (name,) in cursor.fetchall()] == [f"{card.sku}-goes-on"]


def test_a_kind_that_fails_keeps_no_other_back(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> retention.Step:
        raise DatabaseError("no luck")

    monkeypatch.setattr(retention, "_addresses", fail)
    Session.objects.create(
        session_key=f"{card.sku}-over", session_data="", expire_date=timezone.now() - timedelta(hours=1)
    )
    one = Retention()
    with pytest.raises(DatabaseError, match="no luck"):
        one.work_once()
    assert one.work_once() >= 1
    assert not Session.objects.filter(session_key=f"{card.sku}-over").exists()


def test_a_kind_that_failed_is_tried_again_long_before_the_next_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []

    def fail_at_first() -> retention.Step:
        tries.append(clock.now)
        if len(tries) == 1:
            raise DatabaseError("no luck")
        return retention.Step(0, is_last=True)

    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(retention, "time", clock)
    monkeypatch.setattr(retention, "_addresses", fail_at_first)
    one = Retention()
    with pytest.raises(DatabaseError, match="no luck"):
        one.work_once()
    one.work_once()
    clock.now += retention.RETRY_SECONDS - 1
    one.work_once()
    assert tries == [1000.0]
    for seconds in (1, retention.PASS_SECONDS - 1, 1):
        clock.now += seconds
        one.work_once()
    assert tries == [1000.0, 1030.0, 1030.0 + retention.PASS_SECONDS]


def test_a_kind_that_always_fails_keeps_no_other_from_its_next_pass(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> retention.Step:
        raise DatabaseError("no luck")

    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(retention, "time", clock)
    monkeypatch.setattr(retention, "_addresses", fail)
    one, over = Retention(), timezone.now() - timedelta(hours=1)
    for number in range(2):
        Session.objects.create(session_key=f"{card.sku}-{number}", session_data="", expire_date=over)
        for _ in range(int(retention.PASS_SECONDS / retention.RETRY_SECONDS) + 1):
            with pytest.raises(DatabaseError, match="no luck"):
                one.work_once()
            one.work_once()
            clock.now += retention.RETRY_SECONDS
        assert not Session.objects.filter(session_key=f"{card.sku}-{number}").exists()


def test_a_sale_that_fails_keeps_no_later_one_back(
    card: SaleCard, new_sku: Callable[[], str], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.KEEP_ORDERS_DAYS = 30
    other = make_sale(new_sku(), units=1)
    for sale in (card, other):
        bought(sale, f"ada-{sale.sku}")
        ends(sale, days=50)
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(retention, "time", clock)
    one = Retention()

    def fail(execute: Callable[..., Any], sql: str, params: Any, *rest: Any) -> Any:
        if "shop_forget_buyers" in sql and params[0] == card.sale_id:
            raise DatabaseError("no luck")
        return execute(sql, params, *rest)

    def forgotten() -> list[bool]:
        return [buyers_of(sale)[0].startswith(FORGOTTEN) for sale in (card, other)]

    def forget_until(wanted: list[bool]) -> list[bool]:
        for _ in range(500):  # past sales of other tests come first
            with suppress(DatabaseError):
                one.work_once()
            clock.now += retention.RETRY_SECONDS
            if forgotten() == wanted:
                break
        return forgotten()

    with connection.execute_wrapper(fail):
        assert forget_until([False, True]) == [False, True]
    assert forget_until([True, True]) == [True, True]


def test_each_step_is_followed_by_a_rest() -> None:
    rests = []
    Retention(throttle=lambda: rests.append(1)).work_once()
    assert len(rests) >= 10


def test_no_step_has_more_rows_than_its_bound(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_DELETED", 2)
    over = models.ExpressionWrapper(Now() - timedelta(hours=1), output_field=models.DateTimeField())
    for number in range(5):
        Session.objects.create(session_key=f"{card.sku}-{number}", session_data="", expire_date=timezone.now())
    mine = Session.objects.filter(session_key__startswith=f"{card.sku}-")
    mine.update(expire_date=over)
    one, left = Retention(), []
    while one.work_once():
        left.append(mine.count())
    assert max(was - now for was, now in zip([5, *left], left, strict=False)) <= 2
    assert left[-1] == 0
