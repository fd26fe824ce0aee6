"""A whole shop in which each kind of process logs in as its own role and user, as docker/ makes them: each does its
whole job, and each forbidden act is refused by the store itself. Real PostgreSQL, real Valkey, real processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import ProgrammingError
from django.db.models import F
from django.utils import timezone
from post_office.models import STATUS, Email, Log

from inventory import reconcile_requests, redis
from inventory.exceptions import RedisUnavailable
from shop.access import codes
from shop.models import AccessCode, CodeUse, Order, Payment, PaymentNotice, Sale, SaleSample, StaffAct
from shop.orders import holds, mails
from shop.payments import refunds
from shop.salelog.models import SaleLog
from shop.sales.catalogue import SaleCard
from shop.staff import retiring
from shop.stripe.models import CheckoutSession
from tests.support import road
from tests.support.crashes.worker_shop import OwnStores, own_stores, worker_process
from tests.support.http_calls import Buyer, Caller, answer_to
from tests.support.paying import begin, choose
from tests.support.servers.least_rights import (
    connect_postgres,
    forget_refusals,
    redis_as,
    refused_by_redis,
    separate,
    user_lines,
)
from tests.support.servers.mail_server import MailServer, mail_server
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import assert_books_balance, let_holds_end, make_sale, shop_of
from tests.support.staff import browser_of
from tests.support.waiting import wait_until
from workers.database_rights import ACTS, KINDS, RIGHTS, holders, role_of

pytestmark = pytest.mark.usefixtures("shop_database")
MINUTE = timedelta(minutes=1)
WORKERS = ("settler", "expirer", "payments", "reconciler", "mailer", "notary")


@dataclass(frozen=True)
class Shop:
    """Both stores, and the environment of each kind of process; owner: of the process that migrates."""

    stores: OwnStores
    mailbox: MailServer
    kinds: Mapping[str, dict[str, str]]

    @property
    def owner(self) -> dict[str, str]:
        return self.stores.environment


@pytest.fixture(scope="module")
def shop(lasting_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with mail_server() as mailbox:
        # No notice is sent: the payments worker must ask.
        more = {"FAIRDROP_MAIL_URL": mailbox.url, "FAIRDROP_SANDBOX_MISCHIEF": "mute"}
        with own_stores({**lasting_environment, **more}, folder=tmp_path_factory.mktemp("stores")) as stores:
            yield Shop(stores, mailbox, separate(stores))


@contextmanager
def running(shop: Shop, folder: Path) -> Iterator[Caller]:
    """Run every kind of process as itself; fail when a store refused one anything."""
    forget_refusals(shop.stores)
    with ExitStack() as stack:
        children = [stack.enter_context(worker_process(name, shop.kinds[name], folder=folder)) for name in WORKERS]
        web = stack.enter_context(web_process(shop.kinds["web"], folder=folder))
        yield web
        assert [child.name for child in children if not child.running] == []
        assert refused_by_redis(shop.stores) == []
        said = {path.name: path.read_text() for path in folder.glob("*.log")}
        assert {name: text for name, text in said.items() if "permission denied" in text or "NOPERM" in text} == {}


@dataclass(frozen=True)
class Visit:
    """One buyer and what became of the ask."""

    web: Caller
    buyer: Buyer
    request_id: str

    def call(self, what: str, body: bytes = b"{}") -> dict[str, Any]:
        headers = {"Content-Type": "application/json", **self.buyer.headers}
        path = f"/api/v1/requests/{self.request_id}/{what}"
        answer = answer_to(lambda: self.web.call("POST", path, body=body, headers=headers))
        assert answer.status == 200, answer.body
        return answer.json()

    def reaches(self, state: str) -> None:
        wait_until(
            lambda: self.web.status(self.request_id, self.buyer).json().get("state") == state, what=f"it is {state}"
        )


def ask(web: Caller, card: SaleCard) -> Visit:
    """Ask until the web process takes it."""
    buyer = web.new_buyer()
    answer = wait_until(lambda: _taken(web.ask(card.slug, buyer)), what="the ask is taken")
    return Visit(web, buyer, answer.json()["request_id"])


def _taken(answer: Any) -> Any:
    return answer if answer.status in (200, 202) else None


def manage(*words: str) -> None:
    call_command(*words, stdout=StringIO())


def test_each_kind_of_process_does_its_whole_job(shop: Shop, tmp_path: Path) -> None:
    keep_what_is_old(shop)
    with running(shop, tmp_path) as web:
        with shop_of(shop.owner):
            said = (tmp_path / "reconciler.log").read_text
            wait_until(
                lambda: not old_left(), timeout_seconds=600, what=lambda: f"{old_left()} goes: {said()}: that it"
            )
        with shop_of(shop.kinds["web"]):
            card = make_sale("least", units=8)
            manage("sale", "pause", card.slug, "--reason", "a look")
            manage("sale", "resume", card.slug)
            manage("sale", "restock", card.slug, "--units", "2", "--seen-total", "8", "--reason", "more")
            manage("sale", "adjust", card.slug, "--units", "-1", "--seen-total", "10", "--reason", "one broke")
            manage("sale", "terms", card.slug, "--price", "14.00")
        pays, cancels, lapses, asked_about, refunded = (ask(web, card) for _ in range(5))
        for visit in (pays, cancels, lapses, asked_about, refunded):
            visit.reaches("held")
        let_the_mailer_tell(shop, pays)
        assert pays.call("payment")["state"] == "paid"
        assert cancels.call("cancel")["state"] == "cancelled"
        with shop_of(shop.owner):
            let_holds_end(lapses.request_id)
        lapses.reaches("expired")
        let_the_payments_worker_ask(shop, asked_about)
        assert refunded.call("payment")["state"] == "paid"
        with shop_of(shop.kinds["web"]):
            refunds.refund_order(refunded.request_id, actor="anna", reason="sent back")
        refunded.reaches("refunded")
        wait_until(lambda: len(shop.mailbox.taken) >= 2, what="link and payment are told by mail")
        let_the_reconciler_mend(shop, web, card)
        let_staff_look(shop, card)
        retire(shop, card)


def keep_what_is_old(shop: Shop) -> None:
    """Write a row of each kind that the reconciler deletes by age (workers/reconciler/retention.py)."""
    ago = timezone.now() - timedelta(days=5000)
    with shop_of(shop.owner):
        past = make_sale("past", units=1)
        road.queue(past, "ann")
        road.settle_line(past)
        order = Order.objects.get(sale_id=past.sale_id)
        holds.cancel(order.request_id, buyer="ann")
        Payment.objects.create(
            order=order, provider="stripe", reference="past", amount=1, currency="EUR", state="declined", card="past",
            created_at=ago,
        )  # fmt: skip
        CheckoutSession.objects.create(reference="past")
        PaymentNotice.objects.create(provider="stripe", event_id="past", reference="past", received_at=ago)
        manage("sale", "close", past.slug)
        road.settle_line(past)
        manage("sale", "retire", past.slug)
        ended = make_sale("ended", units=1)
        codes.make_codes(ended.sale_id, number=1, uses=1, counts_units=False, batch="of a test")
        CodeUse.objects.create(code=AccessCode.objects.get(), request_id="of a buyer", uses=1)
        Sale.objects.filter(pk=ended.sale_id).update(
            opens_at=ago - timedelta(hours=1), closes_at=ago, revoked_networks="a-mark"
        )
        Sale.objects.filter(pk=past.sale_id).update(opens_at=ago - timedelta(hours=1), closes_at=ago)
        StaffAct.objects.create(act="login", actor="anna", at=ago)
        user = get_user_model().objects.create(username="anna")
        LogEntry.objects.create(user=user, object_repr="past", action_flag=1, action_time=ago)
        Session.objects.create(session_key="past", session_data="", expire_date=ago)
        mail = Email.objects.create(to=["past@shop.example"], from_email="s@shop.example", status=STATUS.sent)
        Log.objects.create(email=mail, status=STATUS.sent)
        Email.objects.filter(pk=mail.pk).update(created=ago)


def old_left() -> set[str]:
    """Return the tables that still have something old."""
    left = {
        "orders": Order.objects.filter(buyer="ann"),
        "cards": Payment.objects.filter(card="past"),
        "sessions at the provider": CheckoutSession.objects.all(),
        "notices": PaymentNotice.objects.filter(event_id="past"),
        "acts": StaffAct.objects.filter(act="login", actor="anna"),
        "changes": LogEntry.objects.filter(object_repr="past"),
        "sessions": Session.objects.filter(pk="past"),
        "sales": Sale.objects.filter(slug="ended", retired_at__isnull=True),
        "uses of codes": CodeUse.objects.all(),
        "networks": Sale.objects.exclude(revoked_networks=""),
        "mails": Email.objects.filter(to=["past@shop.example"]),
    }
    return {name for name, rows in left.items() if rows.exists()}


def let_the_mailer_tell(shop: Shop, visit: Visit) -> None:
    with shop_of(shop.kinds["web"]):
        mails.keep_address(visit.request_id, "ada@shop.example", language="en", root="http://127.0.0.1")


def let_the_payments_worker_ask(shop: Shop, visit: Visit) -> None:
    """Pay on the provider's page, whose notice never comes."""
    choose(visit.web, visit.call("payment", b'{"page": true}')["payment_url"], "pay")
    with shop_of(shop.owner):
        long_ago = timezone.now() - timedelta(minutes=1)
        Payment.objects.filter(order__request_id=visit.request_id).update(created_at=long_ago, changed_at=long_ago)
    visit.reaches("paid")


def let_the_reconciler_mend(shop: Shop, web: Caller, card: SaleCard) -> None:
    """Empty Redis, and wait until the sale goes on; then ask for a comparison, as staff do."""
    with redis_as(shop.owner) as operator:
        operator.flushall()
    ask(web, card).reaches("held")
    with shop_of(shop.kinds["web"]):
        client = redis.connect()
        reconcile_requests.ask(client, card.sku, actor="anna")
        wait_until(
            lambda: (reconcile_requests.last(client, card.sku) or {}).get("state") == reconcile_requests.DONE,
            what="it was compared",
        )
        # It has recorded how the sale stood, also with what only Redis tells.
        recorded = SaleSample.objects.filter(sale_id=card.sale_id, waiting__isnull=False)
        wait_until(lambda: recorded.filter(held__gt=0).exists(), what="the history is recorded")
        wait_until(lambda: recorded.filter(since__lt=F("until")).exists(), what="a row was made longer")
        kept = {str(each.pk) for each in SaleLog.objects.exclude(checkpoint="")}
        wait_until(lambda: kept <= {*client.hkeys("fd:checkpoints")}, what="the checkpoints of all logs are kept again")
        assert len(kept) > 1


def test_a_comparison_by_hand_has_the_rights_of_web(shop: Shop) -> None:
    """It asks the provider about an open payment first. The control: the reconciler's login may not note that."""
    with shop_of(shop.owner):
        card = make_sale("by-hand", units=2)
        (name,) = road.queue(card, "ada")
        road.settle_line(card)
        begin(name)
        Payment.objects.update(created_at=F("created_at") - MINUTE, changed_at=F("changed_at") - MINUTE)
    with shop_of(shop.kinds["reconciler"]), pytest.raises(ProgrammingError, match="permission denied"):
        manage("reconcile")
    with shop_of(shop.kinds["web"]):
        manage("reconcile")


def let_staff_look(shop: Shop, card: SaleCard) -> None:
    """Open what staff open, with the rights of web."""
    with shop_of(shop.kinds["web"]):
        browser = browser_of()
        order = Order.objects.filter(sale_id=card.sale_id).first()
        assert order is not None
        for page in (
            "/admin/", "/admin/inventory/stock/live/", f"/admin/shop/order/{order.pk}/change/", "/admin/shop/sale/",
            f"/admin/shop/sale/{card.sale_id}/change/", f"/admin/shop/sale/{card.sale_id}/audit/",
            f"/admin/shop/sale/{card.sale_id}/room/", "/admin/inventory/stockmovement/", "/admin/auth/user/",
        ):  # fmt: skip
            assert browser.get(page).status_code == 200, page


def retire(shop: Shop, card: SaleCard) -> None:
    """End the sale, balance its books, and let Redis forget it."""
    with shop_of(shop.kinds["web"]):
        manage("sale", "close", card.slug)
        assert_books_balance(card)
        held = list(Order.objects.filter(state="held").values_list("request_id", flat=True))
    with shop_of(shop.owner):
        let_holds_end(*held)
    with shop_of(shop.kinds["web"]):
        sale = Sale.objects.get(pk=card.sale_id)
        wait_until(lambda: retiring.unsettled(sale) == "", what="the sale is settled")
        manage("locks", "list")
        manage("dead_letters", "list")
        manage("sale", "retire", card.slug)
        wait_until(lambda: card.sku not in redis.connect().smembers("fd:skus"), what="Redis has forgotten it")


# Which act is refused to whom. The control: the tables' owner may do each of them, and takes it back.
CHANGES = {
    "a price": "UPDATE shop_sale SET price = 1",
    "a request key": "UPDATE shop_sale SET request_key = 'mine'",
    "the terms": "INSERT INTO shop_saleterms (sale_id, version, price, currency, per_buyer_limit, hold_seconds) "
    "SELECT id, 99, 1, 'EUR', 1, 60 FROM shop_sale",
    "a product": "UPDATE shop_product SET list_price = 1",
    "the units": "UPDATE inventory_stock SET total = total + 1, available = available + 1",
    "a fence": "UPDATE inventory_stock SET fence = fence + 1",
    "a new SKU": "INSERT INTO inventory_stock (sku, total, available, held, sold, fence, version) "
    "VALUES ('other', 1, 1, 0, 0, 0, 0)",
    "a buyer of a past sale": "SELECT shop_forget_buyers(0, 1, '', 1)",
    "a mark": "SELECT shop_forget_networks(0, 1)",
    "an old act": "SELECT shop_forget_acts(30, 1)",
    "no SKU": "DELETE FROM inventory_stock WHERE sku = 'no-such'",
    "an order": "UPDATE shop_order SET state = state, reason = 'mine'",
    "a buyer": "UPDATE shop_order SET restored = restored",
    "a payment": "UPDATE shop_payment SET reason = 'mine'",
    "an address": "UPDATE shop_contact SET address = 'mine@shop.example'",
    "a delivery": "UPDATE shop_deliveryaddress SET city = 'mine'",
    "a password": "UPDATE auth_user SET password = '!'",
    "an event": "INSERT INTO salelog_lineevent (number, stock_id, kind, change, act, role, reason) "
    "VALUES (0, 0, 'load', 1, '', '', '')",
    # Of no row: what is published is refused to its owner, too.
    "a published leaf": "DELETE FROM salelog_tile WHERE number < 0",
    "a table": "CREATE TABLE mine (id int)",
    "a column": "ALTER TABLE shop_sale ADD COLUMN mine int",
    "a trigger": "ALTER TABLE shop_order DISABLE TRIGGER order_changes",
    "every row": "TRUNCATE shop_failed_logins",
    "an owner": "ALTER TABLE shop_sale OWNER TO CURRENT_USER",
}
DEFINITIONS = {"no SKU", "a buyer", "a table", "a column", "a trigger", "every row", "an owner"}
BY_AGE = {"a buyer of a past sale", "a mark", "an old act"}
STAFFS = {
    "a price", "a request key", "the terms", "a product", "the units", "a new SKU", "an address", "a delivery",
    "a password",
}  # fmt: skip
REFUSED = {
    "web": DEFINITIONS | {"a fence"},
    "settler": DEFINITIONS | STAFFS | {"an order", "a payment"},
    "expirer": DEFINITIONS | STAFFS | {"a fence", "a payment"},
    "payments": DEFINITIONS | STAFFS | {"a fence"},
    "reconciler": DEFINITIONS | STAFFS | {"a fence", "an order", "a payment"},
    "mailer": DEFINITIONS | STAFFS | {"a fence", "an order", "a payment"},
    "notary": DEFINITIONS | STAFFS | {"a fence", "an order", "a payment", "an event", "a published leaf"},
}


for _kind in set(KINDS) - {"reconciler"}:
    REFUSED[_kind] |= BY_AGE


@pytest.mark.parametrize(("kind", "what"), [(kind, what) for kind in KINDS for what in sorted(REFUSED[kind])])
def test_postgresql_refuses_what_is_not_a_process_s_job(shop: Shop, kind: str, what: str) -> None:
    with connect_postgres(shop.kinds[kind]) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(CHANGES[what])


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_the_control_the_owner_of_the_tables_is_not_refused(shop: Shop, what: str) -> None:
    with connect_postgres(shop.owner) as connection, connection.transaction(force_rollback=True):
        connection.execute(CHANGES[what])


@pytest.mark.parametrize("kind", KINDS)
def test_a_role_has_the_rights_that_are_written_and_no_others(shop: Shop, kind: str) -> None:
    with connect_postgres(shop.owner) as connection:
        rows = connection.execute(
            """SELECT c.relname, p.act, coalesce(
                   (SELECT string_agg(a.attname, ' ' ORDER BY a.attname) FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                      AND has_column_privilege(%(role)s, c.oid, a.attnum, p.act)), '')
               FROM pg_class c, unnest(%(acts)s::text[]) AS p (act)
               WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'p')
                 AND p.act <> 'DELETE' AND has_any_column_privilege(%(role)s, c.oid, p.act)
                 AND NOT has_table_privilege(%(role)s, c.oid, p.act)
               UNION ALL
               SELECT c.relname, p.act, '' FROM pg_class c, unnest(%(all)s::text[]) AS p (act)
               WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'p')
                 AND has_table_privilege(%(role)s, c.oid, p.act)""",
            {"role": role_of(kind), "acts": list(ACTS[:3]), "all": [*ACTS, "TRUNCATE", "REFERENCES", "TRIGGER"]},
        ).fetchall()
    written = {
        (table, act, " ".join(sorted(columns)))
        for table, cells in RIGHTS.items()
        for act, cell in zip(ACTS, cells, strict=True)
        for who, columns in holders(cell)
        if who == kind
    }
    assert set(rows) == written


@pytest.mark.parametrize("what", sorted(BY_AGE))
def test_the_control_the_reconciler_may_delete_by_age(shop: Shop, what: str) -> None:
    with connect_postgres(shop.kinds["reconciler"]) as connection, connection.transaction(force_rollback=True):
        connection.execute(CHANGES[what])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM shop_staffact")


def test_every_table_is_spoken_of(shop: Shop) -> None:
    with connect_postgres(shop.owner) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'p')"
        ).fetchall()
    assert {name for (name,) in found} == set(RIGHTS)


WORDS: dict[str, tuple[str, ...]] = {
    "everything": ("FLUSHALL",),
    "a setting": ("CONFIG", "GET", "requirepass"),
    "a user": ("ACL", "SETUSER", "mine"),
    "every key": ("KEYS", "*"),
    "all keys": ("SCAN", "0"),
    "the end": ("SHUTDOWN", "NOSAVE"),
    "what all say": ("MONITOR",),
    "the scripts": ("SCRIPT", "FLUSH"),
    "another's key": ("SET", "mine", "1"),
    "the cache": ("HSET", "fd-cache:1:mine", "a", "1"),
    "a line": ("ZADD", "fd:{other}:line", "1", "mine"),
    "the line by a script": ("EVAL", "return redis.call('ZADD', KEYS[1], 1, 'mine')", "1", "fd:{other}:line"),
    "a line not named": ("EVAL", "return redis.call('ZADD', 'fd:{other}:line', 1, 'mine')", "0"),
    "a fence": ("GET", "fd:{other}:fence"),
    "a comparison": ("HGETALL", "fd:reconciliations"),
}
ADMIN = {"everything", "a setting", "a user", "every key", "all keys", "the end", "what all say", "the scripts"}
FOREIGN = ADMIN | {"another's key"}
UNHEARD = {
    "web": FOREIGN,
    "settler": FOREIGN | {"the cache", "a comparison"},
    "expirer": FOREIGN | {"the cache", "a fence", "a comparison"},
    "payments": FOREIGN | {"the cache", "a fence", "a comparison"},
    "reconciler": FOREIGN | {"the cache"},
    "mailer": set(WORDS),
    "notary": FOREIGN | {"the cache", "a line", "the line by a script", "a line not named", "a fence", "a comparison"},
}


@pytest.mark.parametrize(("kind", "what"), [(kind, what) for kind in KINDS for what in sorted(UNHEARD[kind])])
def test_redis_refuses_what_is_not_a_process_s_job(shop: Shop, kind: str, what: str) -> None:
    with redis_as(shop.kinds[kind]) as client, pytest.raises(RedisUnavailable) as refused:
        redis.run_commands(client, [WORDS[what]])
    assert re.search("permission|ACL", str(refused.value.__cause__)), refused.value.__cause__


@pytest.mark.parametrize("what", sorted({*WORDS} - ADMIN))
def test_the_control_the_operator_is_not_refused(shop: Shop, what: str) -> None:
    with redis_as(shop.owner) as client:
        redis.run_commands(client, [WORDS[what]])


def test_the_file_of_users_is_one_that_a_server_takes(shop: Shop) -> None:
    """The lines as the server keeps them; the operator's own is left out, so that the operator is not locked out."""
    with redis_as(shop.owner) as client:
        (lines,) = redis.run_commands(client, [("ACL", "LIST")])
    kept = {line.split()[1] for line in lines}
    assert kept == {line.split()[1] for line in user_lines()} == {*KINDS, "default"}
