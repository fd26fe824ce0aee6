"""One buyer is given everything that is kept of them, and forgotten: no row of any table names them any more, and the
books are as right as before. Real stores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from io import StringIO
from secrets import token_hex
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, models, transaction
from django.db.models import F

from inventory import redis
from inventory.line.admission import Code, SaleLine, admit
from inventory.redis import keys
from shop.access import emails
from shop.models import Contact, Order, Payment, Sale, StaffAct
from shop.orders import deliveries, mails, personal_data, ticket_links
from shop.orders.numbers import order_number
from shop.payments import notices
from shop.payments.providers import Notice
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from shop.staff import retiring
from shop.staff.lists.order_export import export_rows
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, close_sale, make_sale, pay

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")

OTHER = "somebody-else-00000000"


@dataclass(frozen=True)
class Person:
    """A buyer of one test: nobody else of this database has their id, their name or their addresses."""

    buyer: str
    mail: str
    name: str
    street: str
    network: str
    card: str

    @property
    def traces(self) -> tuple[str, ...]:
        return self.buyer, self.mail, self.name, self.street, self.network, self.card

    @property
    def delivery(self) -> dict[str, str]:
        return {"name": self.name, "lines": self.street, "postcode": "10815", "city": "Oldtown", "country": "DE"}


@pytest.fixture
def ada() -> Person:
    mark = token_hex(8)
    return Person(
        f"ada-{mark}", f"ada.{mark}@shop.example", f"Ada {mark}", f"Lane {mark}", token_hex(6), f"card-{mark}"
    )


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    card = make_sale(new_sku(), units=4, limit=3)
    Sale.objects.filter(pk=card.sale_id).update(ships=True)
    priming.prime_sale(card.slug)
    return catalogue.find_sale(card.slug)


def buy(card: SaleCard, ada: Person) -> str:
    """Let the buyer buy a unit, leave every trace that a buyer can, and be followed by somebody else; return the id."""
    name, other = road.queue(card, ada.buyer, OTHER)
    road.settle_line(card)
    mails.keep_address(name, ada.mail, language="en", root="http://127.0.0.1")
    deliveries.keep_address(name, ada.delivery)
    pay(name, other)
    Order.objects.filter(request_id=name).update(network=ada.network)
    Payment.objects.filter(order__request_id=name).update(card=ada.card)
    return name


def ask_again(card: SaleCard, ada: Person) -> str:
    """Let the buyer ask for another unit; return the id."""
    asked = road.ask(card, ada.buyer, key="again")
    road.admit(card, asked)
    return asked.request_id


def number_of(name: str) -> str:
    return order_number(Order.objects.get(request_id=name).pk)


def over(card: SaleCard) -> None:
    close_sale(card)
    road.settle_line(card)
    retiring.retire(card.slug, actor="anna")


def tables_with(text: str) -> set[str]:
    """Return every table of the database in which some row has `text`."""
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
    return {name for name in names if rows_with(text, table=name)}


def rows_with(text: str, *, table: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        query = f'SELECT row_to_json(t) FROM "{table}" t WHERE t::text LIKE %s'  # noqa: S608 - a name of the schema
        cursor.execute(query, [f"%{text}%"])
        return [json.loads(row) if isinstance(row, str) else row for (row,) in cursor.fetchall()]


READ = {"hash": "HGETALL", "string": "GET", "list": ("LRANGE", 0, -1), "set": "SMEMBERS", "zset": ("ZRANGE", 0, -1)}


def redis_keys_with(text: str) -> set[str]:
    """Return every key of Redis, the cache's too, that has `text` in its name or anywhere in its value."""
    wanted, found = text.encode(), set()
    with type(redis.connect()).from_url(settings.REDIS_URL) as client:  # values of the cache are no text
        for name in client.scan_iter(count=10_000):
            kind = client.type(name).decode()
            if kind == "none":  # it ended meanwhile
                continue
            words = READ[kind] if isinstance(READ[kind], tuple) else (READ[kind],)
            value = client.execute_command(words[0], name, *words[1:])
            if wanted in name or wanted in repr(value).encode():
                found.add(name.decode())
    return found


def manage(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def forget(name: str) -> str:
    return manage("forget_buyer", number_of(name), "--reason", "asked for it", "--actor", "anna", "--yes")


def test_a_buyer_who_was_forgotten_stands_in_no_row(card: SaleCard, ada: Person) -> None:
    name = buy(card, ada)
    over(card)
    secret = ticket_links.secret_of(name)
    traces = {text: tables_with(text) for text in ada.traces}
    assert all(traces.values()), traces  # the control: before, each of them is found
    report = forget(name)
    assert "Not retired" not in report
    assert {text: tables_with(text) for text in ada.traces} == {text: set() for text in ada.traces}
    assert not ticket_links.opens(name, secret)
    act = StaffAct.objects.first()
    assert act is not None
    assert (act.act, act.actor, act.reason) == ("forget_buyer", "anna", "asked for it")
    order = Order.objects.get(request_id=name)
    assert (order.state, order.quantity, order.events.count()) == ("paid", 1, 2)
    assert_books_balance(card)


def everywhere(ada: Person, *, entry: str = "") -> dict[str, set[str]]:
    """Return where each trace of a buyer stands: tables, keys of Redis, and what staff would export."""
    exported = repr(list(export_rows(Order.objects.all())))
    found = {}
    for text in filter(None, (*ada.traces, entry)):
        found[text] = tables_with(text) | redis_keys_with(text) | ({"export"} if text in exported else set())
    return found


def test_nothing_that_is_kept_anywhere_names_one_who_was_forgotten(new_sku: Callable[[], str], ada: Person) -> None:
    """Tables, Redis, and what staff export. The controls: before, each trace is found, also after the sale is retired;
    and Redis has its own until then.
    """
    card = make_sale(new_sku(), units=4, limit=3, network_limit=9)
    Sale.objects.filter(pk=card.sale_id).update(ships=True)
    entry = emails.entry_of(emails.normalise(ada.mail), card)
    asked = road.ask(card, ada.buyer, key="of a network")._replace(network=ada.network, entry=entry)
    line = SaleLine(card.sale_id, card.sku, network_limit=9)
    assert [each.code for each in admit(redis.connect(), line, [asked])] == [Code.ADMITTED]
    name = buy(card, ada)
    pay(asked.request_id)
    before = everywhere(ada, entry=entry)
    assert all(before.values()), before
    in_redis = {text: {place for place in places if place.startswith("fd:")} for text, places in before.items()}
    assert {text for text, places in in_redis.items() if places} == {ada.buyer, ada.network, entry}
    assert "export" in before[ada.buyer]
    over(card)
    retired = everywhere(ada)
    assert all(retired.values()), retired
    forget(name)
    assert everywhere(ada, entry=entry) == {text: set() for text in (*ada.traces, entry)}
    assert_books_balance(card)


# Every table that knows a buyer by something personal; the export has what each of them marks.
KNOWING = {"shop_order", "shop_contact", "shop_deliveryaddress", "shop_payment", "post_office_email"}


def test_whatever_is_marked_and_kept_of_a_buyer_is_in_the_export(card: SaleCard, ada: Person) -> None:
    """The same scan, the other way: each row that names them, with each of its personal columns."""
    name = buy(card, ada)
    text = json.dumps(json.loads(manage("export_buyer", number_of(name))), ensure_ascii=False)
    marked = {each._meta.db_table: getattr(each, "personal", ()) for each in apps.get_models()}
    marked["post_office_email"] = ("to", "subject", "message")
    tables = {table for trace in ada.traces for table in tables_with(trace)}
    assert tables == KNOWING
    kept = [
        str(row[column])
        for table in tables
        for trace in ada.traces
        for row in rows_with(trace, table=table)
        for column in marked[table]
    ]
    assert len(kept) > len(ada.traces)
    assert [each for each in kept if json.dumps(each, ensure_ascii=False)[1:-1] not in text] == []


def test_all_orders_of_one_who_was_forgotten_stay_one_buyers(card: SaleCard, ada: Person) -> None:
    """So the audit goes on to see who had more than the limit; other buyers stay who they are."""
    name = buy(card, ada)
    road.settle_line(card)
    second = ask_again(card, ada)
    road.settle_line(card)
    pay(second)
    over(card)
    forget(name)
    buyers = dict(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", "buyer"))
    assert buyers[name] == buyers[second]
    assert buyers[name].startswith(personal_data.FORGOTTEN)
    assert sorted(buyers.values())[-1] == OTHER
    assert_books_balance(card)


def test_a_sale_that_goes_on_keeps_the_id_and_nothing_else(card: SaleCard, ada: Person) -> None:
    name = buy(card, ada)
    assert "Run this again after they are." in forget(name)
    assert tables_with(ada.mail) == tables_with(ada.street) == set()
    assert Order.objects.get(request_id=name).buyer == ada.buyer
    over(card)
    forget(name)
    assert tables_with(ada.buyer) == set()


def test_what_waits_in_line_is_exported_and_its_addresses_forgotten(card: SaleCard, ada: Person) -> None:
    name = buy(card, ada)
    waiting = ask_again(card, ada)
    mails.keep_address(waiting, ada.mail, language="en", root="http://127.0.0.1")
    kept = json.loads(manage("export_buyer", number_of(name)))
    assert [each["request_id"] for each in kept["waiting"]] == [waiting]
    assert kept["waiting"][0]["contact"][0]["address"] == ada.mail
    forget(name)
    assert tables_with(ada.mail) == set()


def test_an_export_has_every_trace(card: SaleCard, ada: Person) -> None:
    name = buy(card, ada)
    text = manage("export_buyer", number_of(name))
    kept: dict[str, Any] = json.loads(text)
    assert all(trace in text for trace in ada.traces)
    assert "somebody-else" not in text
    (order,) = kept["orders"]
    assert (order["number"], order["sale"], order["state"]) == (number_of(name), card.slug, "paid")
    assert [each["to_state"] for each in order["history"]] == ["held", "paid"]
    assert len(order["mails"]) == 1


def counted(name: str) -> list[str]:
    """Return what forget_buyer says would go, in lines; it must not do it."""
    out = StringIO()
    with pytest.raises(CommandError, match="Nothing was changed") as refused:
        call_command("forget_buyer", number_of(name), "--reason", "asked for it", stdout=out)
    assert refused.value.returncode == 1
    return out.getvalue().splitlines()


def test_without_yes_it_only_counts_what_would_go(card: SaleCard, ada: Person) -> None:
    """Nothing personal is printed. The control: with it, all of it is gone."""
    name = buy(card, ada)
    waiting = ask_again(card, ada)
    mails.keep_address(waiting, ada.mail, language="en", root="http://127.0.0.1")
    before, acts = everywhere(ada), StaffAct.objects.count()
    found = counted(name)
    assert found == [
        f"{number_of(name)}  {card.slug}  paid", "orders: 1", "requests in line: 1", "e-mail addresses: 2",
        "delivery addresses: 1", "mails: 2", "marks of networks: 1", "marks of cards: 1",
    ]  # fmt: skip
    assert (everywhere(ada), StaffAct.objects.count()) == (before, acts)
    assert not [trace for trace in ada.traces if trace in "\n".join(found)]
    road.settle_line(card)
    pay(waiting)
    over(card)
    assert "Forgotten: addresses, mails and links of 2 orders." in forget(name)
    assert set(map(len, everywhere(ada).values())) == {0}


def test_of_one_who_was_forgotten_only_the_order_is_counted(card: SaleCard, ada: Person) -> None:
    name = buy(card, ada)
    forget(name)
    assert counted(name) == [
        f"{number_of(name)}  {card.slug}  paid", "orders: 1", "requests in line: 0", "e-mail addresses: 0",
        "delivery addresses: 0", "mails: 0", "marks of networks: 0", "marks of cards: 0",
    ]  # fmt: skip


def test_each_number_leads_to_all_orders_until_the_last_sale_is_retired(
    card: SaleCard, new_sku: Callable[[], str], ada: Person
) -> None:
    """Their id stays in a retired sale, too, as long as they wait in another: one run ends it, with either number."""
    first, live = buy(card, ada), make_sale(new_sku(), units=4, limit=3)
    over(card)
    waiting = ask_again(live, ada)
    assert f"their id stays: {live.slug}." in forget(first)  # who only waits there is not forgotten either
    assert Order.objects.get(request_id=first).buyer == ada.buyer
    road.settle_line(live)
    pay(waiting)
    assert f"their id stays: {live.slug}." in forget(waiting)
    over(live)
    assert "their id stays" not in forget(first)
    assert tables_with(ada.buyer) == set()


def hear_late(name: str, *, event_id: str = "") -> str:
    """Let an event of a charge come after all others; return the mark of a card that is kept then."""
    paid = Payment.objects.get(order__request_id=name)
    event_id = event_id or token_hex(8)
    notice = Notice(event_id, "captured", paid.reference, paid.amount, paid.currency, card="fingerprint")
    notices.take_notice(notice, provider_name="sandbox")
    return Payment.objects.values_list("card", flat=True).get(pk=paid.pk)


def test_a_late_event_brings_no_mark_of_a_card_back(card: SaleCard, ada: Person) -> None:
    """The control: of a buyer who was not forgotten the mark is kept."""
    name, other = buy(card, ada), Order.objects.get(sale_id=card.sale_id, buyer=OTHER).request_id
    over(card)
    forget(name)
    assert (hear_late(name), hear_late(other)) == ("", "fingerprint")


def test_an_event_that_comes_again_brings_no_mark_of_a_card_back(card: SaleCard, ada: Person) -> None:
    """Their sale goes on, so their id stays. The control: the first time it brings one."""
    name = buy(card, ada)
    Payment.objects.filter(order__request_id=name).update(card="")
    assert hear_late(name, event_id=f"event-{name}") == "fingerprint"
    forget(name)
    assert hear_late(name, event_id=f"event-{name}") == ""


def test_forgetting_is_whole_or_nothing(card: SaleCard, ada: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    name = buy(card, ada)
    over(card)

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StaffAct.objects, "create", die)
        with pytest.raises(KeyboardInterrupt):
            forget(name)
    assert mails.find_address(name) == ada.mail
    forget(name)
    assert tables_with(ada.mail) == tables_with(ada.buyer) == set()


def test_no_order_becomes_another_buyers(card: SaleCard, ada: Person) -> None:
    """The control of the trigger: an id of one who was forgotten may stand there."""
    name = buy(card, ada)
    orders = Order.objects.filter(request_id=name)
    with pytest.raises(DatabaseError, match="what was agreed"), transaction.atomic():
        orders.update(buyer=OTHER)
    assert orders.update(buyer=f"{personal_data.FORGOTTEN}{'x' * 16}") == 1
    with pytest.raises(DatabaseError, match="what was agreed"), transaction.atomic():
        orders.update(quantity=F("quantity") + 1)


@pytest.mark.parametrize("command", [("export_buyer",), ("forget_buyer", "--reason", "x")])
@pytest.mark.parametrize("number", ["FD-1-0", "rubbish", ""])
def test_a_number_of_no_order_is_said_so(command: tuple[str, ...], number: str) -> None:
    with pytest.raises(CommandError, match="no order with this number"):
        manage(command[0], number, *command[1:])


def test_the_line_forgets_the_id_with_its_sale(card: SaleCard, ada: Person) -> None:
    name = buy(card, ada)
    (records,) = redis.run_commands(redis.connect(), [("HEXISTS", keys.records(card.sku), name)])
    assert records  # the control
    over(card)
    forget(name)
    (records,) = redis.run_commands(redis.connect(), [("HEXISTS", keys.records(card.sku), name)])
    assert not records


# Columns with texts that say nothing of a buyer: of goods, sales and staff, and the shop's own names and numbers.
OF_THE_SHOP = {
    "slug", "sku", "title", "title_zh", "tagline", "tagline_zh", "description", "description_zh", "picture", "currency",
    "operator_state", "pause_reason", "request_key", "name", "request_id", "reference", "provider", "event_id", "kind",
    "act", "actor", "role", "reason", "detail", "result", "state", "from_state", "to_state", "origin", "checkpoint",
    "versions", "lost", "restored", "session_id", "pass_mode", "email_mode", "email_list", "revoked_networks",
    "digest", "batch",
}  # fmt: skip
# Of staff (accounts, second factors), of Django and of the sandbox that stands for a provider; post_office has the
# mails, which go with the address.
OTHER_APPS = {
    "auth", "admin", "contenttypes", "sessions", "axes", "post_office", "passkeys", "sandbox", "otp_totp", "otp_static",
}  # fmt: skip


def test_every_column_with_text_is_marked_as_personal_or_known_not_to_be() -> None:
    """The control: a column of Contact that loses its mark is found."""
    ours = [each for each in apps.get_models() if each._meta.app_label not in OTHER_APPS]
    assert {"shop", "inventory", "salelog"} <= {each._meta.app_label for each in ours}
    assert [unmarked(each, marked=getattr(each, "personal", ())) for each in ours] == [set()] * len(ours)
    assert unmarked(Contact, marked=("language", "root")) == {"address"}


def unmarked(model: type[models.Model], *, marked: Collection[str]) -> set[str]:
    known = {*marked, *(OF_THE_SHOP if "name" not in marked else OF_THE_SHOP - {"name"})}
    texts = (models.CharField, models.TextField, models.JSONField, models.GenericIPAddressField)
    return {each.name for each in model._meta.concrete_fields if isinstance(each, texts)} - known
