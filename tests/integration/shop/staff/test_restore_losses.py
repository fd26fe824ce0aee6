"""What outlived a restored database is named by its kind: places in a public log, addresses, published logs, terms,
units, charges at Stripe, a provider that does not answer, and mails that would be sent twice. Real stores: what the
database learns in a `lost` block is rolled back, Redis and the provider keep it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import pytest
from django.conf import settings
from django.db import transaction
from django.test.utils import override_settings
from django.urls import reverse
from post_office.models import STATUS, Email

from inventory import redis
from inventory.line import reading, writing
from inventory.records import Record, StockFigures, Ticket
from inventory.redis import Client, keys
from inventory.states import State
from shop.management.commands.after_restore import as_json, as_text
from shop.models import Order, Payment
from shop.orders import mails
from shop.orders.restoring import restore
from shop.payments import notices
from shop.payments.losses import Loss, find_losses, lost_of_sku, take_newer_charges
from shop.payments.providers import default_provider
from shop.salelog.models import SaleLog
from shop.salelog.notes import Checkpoint, read_note, sign
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from shop.sandbox.provider import Sandbox
from shop.staff import sale_control
from shop.staff.restore import charges, orders, traces
from shop.stripe.models import CheckoutSession
from shop.stripe.provider import Stripe
from shop.tickets.signing import sign_tickets
from tests.support import paying, road
from tests.support.sale_logs import publish
from tests.support.servers.stripe_server import Refused, StripeServer
from tests.support.shopkeeping import assert_books_balance, make_sale, pay
from tests.support.stripe_shop import begin, hear, payment_of, selling_by_stripe
from workers.mailer import Mailer

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


@pytest.fixture
def client() -> Client:
    return redis.connect()


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    """Let this process sell by Stripe; whatever is asked of it must have the shape that Stripe describes."""
    with selling_by_stripe() as server:
        yield server
        assert server.faults == []


@contextmanager
def lost() -> Iterator[None]:
    """Lose what the database learns in the block, as if the backup had been made before it."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def places_of(found: list[Loss], card: SaleCard) -> list[tuple[str, str]]:
    return [(loss.kind, loss.name) for loss in found if loss.sku == card.sku]


def traces_of(card: SaleCard) -> list[tuple[str, str]]:
    return places_of(traces.find_traces(), card)


# Places that nobody knows any more.


def let_in(card: SaleCard, *buyers: str) -> tuple[list[str], list[str]]:
    """Let each buyer ask for one unit; return their requests and their tickets."""
    asks = [road.ask(card, buyer) for buyer in buyers]
    places = [
        Ticket(ask.request_id, ask.buyer, 1, each.seq, each.terms_version, each.ordinal)
        for ask, each in zip(asks, road.admit(card, *asks), strict=True)
    ]
    tickets = sign_tickets(places, slug=card.slug, request_key=card.request_id_key())
    return [each.request_id for each in asks], list(tickets)


def test_a_published_place_without_order_and_record_is_named_until_its_ticket_comes(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controls: one that Redis knows is not named, nor one that has an order."""
    monkeypatch.setattr(traces, "PAGE", 2)
    names, tickets = let_in(card, "ann", "bob", "eve", "dan")
    road.settle_line(card)
    publish()
    assert traces_of(card) == []
    road.forget(card)
    assert sorted(traces_of(card)) == sorted(("place_published", name) for name in names[2:])
    priming.prime_sale(card.slug)
    restore(tickets[2], buyer="eve")
    assert traces_of(card) == [("place_published", names[3])]


def test_a_place_whose_buyer_left_an_address_is_named(card: SaleCard) -> None:
    """The controls: of a buyer without an address nothing is left that could be named; an order is known."""
    names, _ = let_in(card, "ann", "bob", "eve", "dan")
    road.settle_line(card)
    for name in (names[0], names[2]):
        mails.keep_address(name, "somebody@shop.example", language="en", root="http://127.0.0.1")
    assert traces_of(card) == []
    road.forget(card)
    assert traces_of(card) == [("place_mailed", names[2])]


# Mails that their readers may have already.


def mails_of(card: SaleCard) -> traces.Mails:
    """Return what find_mails says of the requests of one sale."""
    own = f"{card.sale_id:x}-"
    found = traces.find_mails()
    return traces.Mails(*([name for name in names if name.startswith(own)] for names in found))


def send_mails() -> None:
    """Let a mailer work until nothing is left to send."""
    mailer = Mailer()
    while mailer.work_once():
        pass


def test_mails_that_would_be_sent_twice_are_named_until_they_are_sent(new_sku: Callable[[], str]) -> None:
    """The controls: a mail that was sent before the backup, and an order without an address, are not named."""
    card = make_sale(new_sku(), units=3)
    before, since, silent = paying.hold(card, buyers=3)
    mails.keep_address(before, "before@shop.example", language="en", root="http://127.0.0.1")
    send_mails()
    mails.keep_address(since, "since@shop.example", language="en", root="http://127.0.0.1")
    with lost():
        Email.objects.filter(status=STATUS.queued).update(status=STATUS.sent)
        assert mails_of(card) == ([], [])
    assert mails_of(card) == ([since], [])
    for name in (before, silent):
        pay(name)
    assert mails_of(card) == ([since], [before])
    send_mails()
    assert mails_of(card) == ([], [])


def test_a_mail_about_a_hold_that_is_over_is_not_named(card: SaleCard) -> None:
    """It is not sent. The control: while the hold lasts it is named."""
    (name,) = paying.hold(card, buyers=1)
    mails.keep_address(name, "late@shop.example", language="en", root="http://127.0.0.1")
    soon = datetime.now(UTC) + timedelta(hours=1)
    mine = Email.objects.filter(headers__contains={mails.REQUEST_HEADER: name})
    assert mine.update(expires_at=soon) == 1
    assert mails_of(card) == ([name], [])
    mine.update(expires_at=soon - timedelta(hours=2))
    assert mails_of(card) == ([], [])
    mine.delete()


def test_after_restore_says_how_many_mails_would_be_sent_twice() -> None:
    said = as_text([], paused=[], mails=traces.Mails(["a", "b"], ["c"]))
    assert "2 that waited in the backup and 1 with news" in said
    assert "mails" not in as_text([], paused=[], mails=traces.Mails([], []))
    assert json.loads(as_json([], paused=[], mails=traces.Mails(["a"], [])))["mails"] == {"waiting": ["a"], "news": []}


# A public log that is shorter than what was published of it.


@pytest.fixture
def log(card: SaleCard) -> Iterator[SaleLog]:
    """Publish a log of three leaves."""
    let_in(card, "ann", "bob")
    publish()
    yield SaleLog.objects.get(sale_id=card.sale_id)
    road.run(("HDEL", keys.checkpoints(), card.sale_id))  # no notary of a later test may meet it


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_log_of_which_more_was_published_than_the_database_has_is_named(
    card: SaleCard, log: SaleLog, size: int
) -> None:
    """The controls: all of what was published is there, or Redis is older than the database."""
    assert log.size == 3
    note = sign(Checkpoint(log.origin, size, read_note(log.checkpoint).root))
    road.run(("HSET", keys.checkpoints(), card.sale_id, note))
    found = [each for each in traces.find_traces() if each.sku == card.sku]
    assert [(loss.kind, loss.name) for loss in found] == [("log_shorter", log.origin)] * (size == 4)
    assert all("4 leaves were published, the database has 3" in loss.detail for loss in found)


def test_a_checkpoint_that_cannot_be_read_is_said_so(card: SaleCard, log: SaleLog) -> None:
    for note in ("nonsense", log.checkpoint.replace("\n3\n", "\n9\n")):
        road.run(("HSET", keys.checkpoints(), card.sale_id, note))
        (loss,) = [each for each in traces.find_traces() if each.sku == card.sku]
        assert (loss.kind, loss.name) == ("log_shorter", log.origin)
        assert "cannot be read" in loss.detail


# Terms and units.


def held_in_redis(client: Client, card: SaleCard, name: str, *, sale_id: int | None = None) -> Record:
    """Let Redis be told that a request holds its unit, of which the database knows nothing; return its record."""
    told = reading.figures(client, card.sku)
    (place,) = reading.places(client, card.sku, [name])
    assert told is not None
    assert place is not None
    record = place.record._replace(
        state=State.HELD, hold_expires_ms=4_000_000_000_000, sale_id=sale_id or place.record.sale_id
    )
    figures = road.figures(available=told.available - 1, held=told.held + 1, version=told.version + 1)
    writing.publish_changes(client, card.sku, figures=figures, changed=[writing.Settled(name, record)])
    return record


def test_an_order_under_terms_that_were_lost_is_left_to_a_person(card: SaleCard, client: Client) -> None:
    """The control: one under terms of before the backup comes back, in the same run."""
    (before,) = road.queue(card, "ann")
    with lost():
        sale_control.change_terms(card.slug, actor="anna", price=Decimal("9.00"))
        (after,) = road.queue(catalogue.find_sale(card.slug), "bob")
    known, unknown = (held_in_redis(client, card, name) for name in (before, after))
    assert known.terms_version < unknown.terms_version
    left = orders.bring_back(client, card.sku)
    assert [(loss.kind, loss.name, loss.buyer, loss.units) for loss in left] == [("terms_missing", after, "bob", 1)]
    assert f"version {unknown.terms_version} of its sale's terms is not in the database" in left[0].detail
    assert list(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", "state")) == [(before, "held")]
    assert orders.bring_back(client, card.sku) == left


def test_an_order_of_a_sale_that_was_lost_is_left_to_a_person(card: SaleCard, client: Client) -> None:
    known, unknown = road.queue(card, "ann", "bob")
    no_sale = 2**40
    held_in_redis(client, card, known)
    held_in_redis(client, card, unknown, sale_id=no_sale)
    (loss,) = orders.bring_back(client, card.sku)
    assert (loss.kind, loss.name) == ("terms_missing", unknown)
    assert f"sale {no_sale} is not in the database" in loss.detail
    assert list(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", "state")) == [(known, "held")]


def kinds_of(client: Client, card: SaleCard) -> list[str]:
    return [loss.kind for loss in lost_of_sku(client, card.sku)]


@pytest.mark.parametrize("units", [3, -1])
def test_units_of_which_only_redis_was_told_are_named_until_they_are_there(
    card: SaleCard, client: Client, units: int
) -> None:
    """The control: the same loss of an act that left the number of units as it was is only an older row."""
    assert kinds_of(client, card) == []
    with lost():
        sale_control.adjust(card.slug, units=units, actor="anna", reason="counted")
        sale_control.adjust(card.slug, units=1, actor="anna", reason="found")
        sale_control.adjust(card.slug, units=-1, actor="anna", reason="broken")
    (differs, older) = lost_of_sku(client, card.sku)
    assert (differs.kind, older.kind) == ("units_differ", "stock_older")
    assert f"2 units in all, Redis was told {2 + units}" in differs.detail
    sale_control.adjust(card.slug, units=units, actor="anna", reason="counted")
    assert kinds_of(client, card) == ["stock_older"]
    orders.publish_line(client, card.sku)
    assert kinds_of(client, card) == []


def test_units_that_differ_are_named_also_when_staff_changed_them_since(card: SaleCard, client: Client) -> None:
    """The control: once the number is right, nothing is named."""
    with lost():
        sale_control.restock(card.slug, units=3, actor="anna")
    sale_control.restock(card.slug, units=1, actor="anna")
    assert kinds_of(client, card) == ["units_differ"]  # the row has the version that Redis was told
    orders.bring_back(client, card.sku)
    sale_control.restock(card.slug, units=2, actor="anna")
    orders.publish_line(client, card.sku)
    assert kinds_of(client, card) == []
    assert_books_balance(card)


def test_units_that_differ_are_named_however_much_was_brought_back(card: SaleCard, client: Client) -> None:
    """Bringing back may need more versions of the row than selling did. The control: as many units, nothing is named
    but the payment that no provider knows.
    """
    names = dict(zip((State.EXPIRED, State.PAID, State.HELD), road.queue(card, "ann", "bob", "eve"), strict=True))
    places = dict(zip(names, reading.places(client, card.sku, list(names.values())), strict=True))
    changed = [
        writing.Settled(names[state], place.record._replace(state=state)) for state, place in places.items() if place
    ]
    told = StockFigures(available=1, held=1, sold=1, version=5)  # restocked, settled, expired, paid
    writing.publish_changes(client, card.sku, figures=told, changed=changed)
    for _ in range(2):
        assert orders.bring_back(client, card.sku) == []
        assert kinds_of(client, card)[0] == "units_differ"
    seen = reading.figures(client, card.sku)
    assert seen is not None
    assert seen[:3] == told[:3]
    sale_control.restock(card.slug, units=1, actor="anna")
    orders.bring_back(client, card.sku)
    orders.publish_line(client, card.sku)
    assert kinds_of(client, card) == ["order_older"]


# Charges at Stripe, and a provider that is away.


class Sold(NamedTuple):
    """What Stripe knows of five sessions; by their references."""

    paid: list[str]
    refunded: str
    unpaid: str


@pytest.fixture
def sold(new_sku: Callable[[], str], stripe: StripeServer) -> Sold:
    """Let five buyers begin to pay: three have paid, one has the money back, one is still at it."""
    card = make_sale(new_sku(), units=5)
    references = []
    for number, name in enumerate(paying.hold(card, buyers=5)):
        begin(name, buyer=f"buyer-{number:07d}")
        references.append(payment_of(name).reference)
    for reference in references[:4]:
        stripe.pay(reference)
    stripe.give_back(references[3])
    return Sold(references[:3], references[3], references[4])


def long_ago() -> datetime:
    return datetime.now(UTC) - timedelta(days=3)


def test_stripe_says_what_it_collected_and_gave_back_page_by_page(sold: Sold, stripe: StripeServer) -> None:
    """Nothing of a session that nobody paid, and of one that is not of this shop."""
    stripe.page_size = 2
    foreign = stripe.session_of(sold.paid[0]) | {"id": "cs_test_foreign", "metadata": {}, "client_reference_id": None}
    stripe.sessions["cs_test_foreign"] = foreign
    found = list(Stripe().collected_since(long_ago()))
    assert stripe.called("GET /v1/checkout/sessions") == 3
    assert {(each.notice.reference, each.notice.kind) for each in found} == {
        *((reference, "captured") for reference in sold.paid),
        (sold.refunded, "refunded"),
    }
    assert len(found) == 4
    assert {(each.notice.amount, each.notice.currency) for each in found} == {(Decimal("15.00"), "EUR")}
    for each in found:
        payment = Payment.objects.get(reference=each.notice.reference)
        assert charges.request_of(each.return_url) == payment.order.request_id
        assert each.begun_at.timestamp() == stripe.session_of(payment.reference)["created"]


def test_stripe_is_asked_for_sessions_begun_since_then_only(sold: Sold, stripe: StripeServer) -> None:
    now = datetime.now(UTC)
    for number, reference in enumerate([*sold.paid, sold.refunded, sold.unpaid]):
        stripe.session_of(reference)["created"] = int((now - timedelta(hours=number)).timestamp())
    found = Stripe().collected_since(now - timedelta(minutes=90))
    assert {each.notice.reference for each in found} == set(sold.paid[:2])


def test_a_refund_is_found_however_old_its_charge_is(card: SaleCard, stripe: StripeServer) -> None:
    """The control: before the refund nothing is said of a charge that is so old."""
    (name,) = paying.hold(card, buyers=1)
    begin(name)
    reference = payment_of(name).reference
    hear(stripe.pay(reference))
    stripe.session_of(reference)["created"] -= 9 * 86_400
    assert list(Stripe().collected_since(long_ago())) == []
    Stripe().refund(reference)
    for _ in range(2):
        charges.settle_charges(long_ago())
        assert (paying.state_of(name), payment_of(name).state) == ("refunded", "refunded")
    assert_books_balance(card)


def test_sessions_whose_names_were_lost_can_be_looked_up_and_given_back_afterwards(
    sold: Sold, stripe: StripeServer
) -> None:
    """The control: before, nobody knows which session it was."""
    CheckoutSession.objects.filter(reference__in=sold.paid).delete()
    assert Stripe().look_up(sold.paid[0]) is None
    list(Stripe().collected_since(long_ago()))
    known = [Stripe().look_up(reference) for reference in sold.paid]
    assert [each and each.kind for each in known] == ["captured"] * 3
    Stripe().refund(sold.paid[0])
    assert [each["amount"] for each in stripe.refunds.values()] == [1500]


def test_a_payment_by_stripe_that_was_lost_is_named_and_pays_once(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = paying.hold(card, buyers=1)
    with lost():
        begin(name)
        reference = payment_of(name).reference
    event = stripe.pay(reference)
    (loss,) = charges.find_unknown(long_ago())
    assert (loss.kind, loss.name) == ("charge_unknown", reference)
    assert f"collected 15.00 EUR for {name}" in loss.detail
    for _ in range(2):
        charges.settle_charges(long_ago())
        assert charges.find_unknown(long_ago()) == []
    assert paying.state_of(name) == "paid"
    payment = Payment.objects.get(order__request_id=name)
    assert (payment.reference, payment.state, payment.amount) == (reference, "captured", Decimal("15.00"))
    hear(event)
    assert stripe.refunds == {}
    assert_books_balance(card)


def away_in(losses: list[Loss]) -> list[str]:
    return [loss.name for loss in losses if loss.kind == "provider_away"]


def test_a_provider_that_does_not_answer_is_named_and_passed_over(card: SaleCard, stripe: StripeServer) -> None:
    """The control: once it answers, it is not named, and what it collected is."""
    (name,) = paying.hold(card, buyers=1)
    begin(name)
    reference = payment_of(name).reference
    stripe.pay(reference)
    stripe.refuse = Refused(503, "api_error", "Stripe is away")
    assert away_in(find_losses()) == away_in(charges.find_unknown(long_ago())) == [default_provider()]
    charges.settle_charges(long_ago())
    take_newer_charges()
    assert paying.state_of(name) == "held"
    stripe.refuse = None
    found = find_losses()
    assert away_in(found) == away_in(charges.find_unknown(long_ago())) == []
    assert [loss.name for loss in found if loss.kind == "charge_newer"] == [reference]
    charges.settle_charges(long_ago())
    assert paying.state_of(name) == "paid"
    assert_books_balance(card)


def test_while_one_provider_is_away_the_others_are_compared(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = paying.hold(card, buyers=1)
    with lost():
        payment = notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")
    Sandbox().begin(replace(paying.charge_of(payment), return_url=reverse("ticket", args=[name])))
    paying.happen(payment, "captured")
    stripe.refuse = Refused(503, "api_error", "Stripe is away")
    both = {**settings.PAYMENT_PROVIDERS, "sandbox": "shop.sandbox.provider.Sandbox"}
    with override_settings(PAYMENT_PROVIDERS=both):
        found = charges.find_unknown(long_ago())
    assert away_in(found) == [default_provider()]
    assert payment.reference in {loss.name for loss in found if loss.kind == "charge_unknown"}
