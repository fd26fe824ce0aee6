"""Proves the mails of a flood in which every worker is killed: each buyer with an address gets exactly the mails that
the history of the order calls for, and the mail server takes each under one id. The control: a mailer that does not
note what it told, or notes it without a mail.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from secrets import token_hex

import pytest
from django.db.models import QuerySet
from django.db.models.functions import Now
from post_office.models import STATUS, Email

from shop.models import Contact, Order, OrderEvent
from shop.orders import mails
from shop.payments import refunds
from tests.support import road
from tests.support.crashes.worker_shop import WorkerShop, own_stores, worker_shop
from tests.support.paying import begin, happen, hear
from tests.support.servers.mail_server import MailServer, mail_server
from tests.support.shopkeeping import assert_books_balance, fill_line, let_holds_end, make_sale
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from workers.embedded.child_process import ChildProcess
from workers.mailer import Mailer

pytestmark = pytest.mark.usefixtures("quiet_notices")

# A mail that the machine kept for too long is sent again two minutes later.
AGAIN_SECONDS = 3 * PATIENCE_SECONDS
BUYERS, UNITS = 60, 40
LINK, TURN = "The link of your ticket", "It is your turn: pay to keep it"
PAID, REFUNDED = "Paid: your receipt", "Your money goes back"
SUBJECTS = {"held": TURN, "paid": PAID, "refunded": REFUNDED}


class Addresses:
    """The buyers who gave an address, with the last change of their order that the ticket showed them then."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def give(self, names: Sequence[str]) -> None:
        for name in names:
            self.seen[name] = max((number for number, _ in changes_of(name)), default=0)
            mails.keep_address(name, f"{name.lower()}@shop.example", language="en", root="https://shop.example")

    @property
    def wanted(self) -> dict[str, list[str]]:
        """What the history calls for: the link, then each later change that is told."""
        return {
            name: [
                LINK,
                *(SUBJECTS[state] for number, state in changes_of(name) if number > after and state in SUBJECTS),
            ]
            for name, after in self.seen.items()
        }

    @property
    def queued(self) -> dict[str, list[str]]:
        """What the mailers made of it."""
        found: dict[str, list[str]] = {name: [] for name in self.seen}
        for each in Email.objects.order_by("id"):
            found[each.headers[mails.REQUEST_HEADER]].append(each.subject)
        return found

    def all_sent(self) -> bool:
        waiting = Email.objects.exclude(status=STATUS.sent).exclude(pk__in=ended_mails())
        return self.queued == self.wanted and not waiting.exists()


def ended_mails() -> QuerySet[Email]:
    """Return the mails that were not sent in time, and are not sent any more."""
    found: QuerySet[Email] = Email.objects.exclude(status=STATUS.sent).filter(expires_at__lte=Now())
    return found


def changes_of(name: str) -> list[tuple[int, str]]:
    """Return each change of an order: its number, and what state it led to."""
    events = OrderEvent.objects.filter(order__request_id=name)
    return list(events.order_by("id").values_list("id", "to_state"))


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture
def shop(django_db_setup: None, shop_database: None, server: MailServer, tmp_path: Path) -> Iterator[WorkerShop]:
    """Run both stores for one test, with locks that a dead holder does not keep for long."""
    own = {**os.environ, "FAIRDROP_LOCK_TTL_MS": "1500", "FAIRDROP_MAIL_URL": server.url}
    with own_stores(own, folder=tmp_path) as stores, worker_shop(stores, folder=tmp_path) as shop:
        yield shop


def kill(child: ChildProcess) -> None:
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(timeout_seconds=60)


def in_state(names: Sequence[str], state: str) -> list[str]:
    """Return which of the requests have an order in that state, in the order of the line."""
    found = set(Order.objects.filter(request_id__in=names, state=state).values_list("request_id", flat=True))
    return [name for name in names if name in found]


def start(shop: WorkerShop, worker: str, *, fault: str = "") -> ChildProcess:
    return shop.start(worker, name=f"{worker}-{token_hex(3)}", fault=fault)


def die_at(shop: WorkerShop, worker: str, *points: str) -> None:
    """Let one worker after another die, each at one of `points`."""
    for point in points:
        victim = start(shop, worker, fault=f"{point}:kill")
        shop.wait_until_struck(victim, point)
        assert victim.wait(timeout_seconds=60)
        assert victim.exit_code == -signal.SIGKILL


def die_unconfirmed(shop: WorkerShop, server: MailServer) -> None:
    """Let a mailer die after the server took a mail, before it says so."""
    server.is_silent, before = True, len(server.taken)
    victim = start(shop, "mailer")
    wait_until(lambda: len(server.taken) > before, what="a mail is taken")
    kill(victim)
    server.is_silent = False


def test_every_mail_that_events_call_for_and_no_other(shop: WorkerShop, server: MailServer) -> None:
    card = make_sale(f"mails-{token_hex(4)}", units=UNITS, hold_seconds=3600, closes_in_seconds=7200)
    names, people = fill_line(card, buyers=BUYERS), Addresses()
    late_givers = names[30:40]
    people.give([name for name in names if name not in late_givers])

    die_at(shop, "settler", "in_transaction")
    settler = start(shop, "settler")
    wait_until(lambda: len(in_state(names, "held")) == UNITS, what="all units are held")
    people.give(late_givers)
    die_at(shop, "mailer", "in_mail", "before_mail")
    die_unconfirmed(shop, server)
    mailer = start(shop, "mailer")
    wait_until(people.all_sent, timeout_seconds=AGAIN_SECONDS, what="the first turns are told")

    # Eight pay and the shop hears of it; eight more pay, and their notice is lost.
    kill(mailer)
    for name in names[:8]:
        hear(happen(begin(name), "captured"))
    for name in names[8:16]:
        happen(begin(name), "captured")
    payments = start(shop, "payments")
    wait_until(lambda: len(in_state(names[8:16], "paid")) > 0, what="the first lost notice is found")
    kill(payments)
    start(shop, "payments")
    die_at(shop, "mailer", "in_mail", "before_mail")

    # The holds of twelve end, of whom three pay too late; their units go to others, and four get their money back.
    too_late = [begin(name) for name in names[16:19]]
    kill(settler)
    let_holds_end(*names[16:28])
    die_at(shop, "expirer", "in_expire", "after_expire")
    start(shop, "expirer")
    die_at(shop, "settler", "after_commit")
    settler = start(shop, "settler")
    wait_until(lambda: len(in_state(names[40:], "held")) == 12, what="the units that came back are held again")
    for payment in too_late:
        hear(happen(payment, "captured"))
    wait_until(lambda: len(in_state(names[8:16], "paid")) == 8, what="all lost notices are found")
    for name in names[:4]:
        refunds.refund_order(name, actor="anna", reason="broken", ask_now=False)
    kill(settler)
    start(shop, "settler")
    die_at(shop, "mailer", "in_mail", "before_mail")
    die_unconfirmed(shop, server)
    start(shop, "mailer")
    wait_until(lambda: len(in_state(names[40:], "held")) == 16, what="the units of the refunds are held again")
    wait_until(people.all_sent, timeout_seconds=AGAIN_SECONDS, what="everything is told")

    told = Counter(subject for subjects in people.queued.values() for subject in subjects)
    assert told == {LINK: 60, TURN: 30 + 16, PAID: 16, REFUNDED: 3 + 4}
    # A receipt that waited when its money went back is not sent after the mail that says so.
    assert {(each.subject, each.headers[mails.REQUEST_HEADER]) for each in ended_mails()} <= {
        (PAID, name) for name in names[:4]
    }
    check_taken(server)
    assert_books_balance(card)


def check_taken(server: MailServer) -> None:
    """Fail unless the server took every mail that was queued, and no other; the same one again has the same id.

    Of one that was ended it may have taken a try that the mailer did not live to note.
    """
    queued = {each.message_id: (each.to, each.subject) for each in Email.objects.all()}
    assert len(queued) == Email.objects.count()
    taken = {each["Message-ID"]: ([each["To"]], each["Subject"]) for each in server.taken}
    assert {name: queued[name] for name in taken} == taken
    assert queued.keys() - taken.keys() <= set(ended_mails().values_list("message_id", flat=True))


@pytest.fixture
def empty_mailbox(shop_database: None) -> Iterator[None]:
    """No mail and no address of another test."""
    for table in (Email, Contact):
        table.objects.all().delete()
    yield
    for table in (Email, Contact):
        table.objects.all().delete()


@pytest.mark.parametrize("broken", ["", "_note_told", "_queue"], ids=["whole", "not noted", "noted without a mail"])
@pytest.mark.usefixtures("empty_mailbox")
def test_a_mailer_without_its_note_doubles_and_one_without_its_mail_loses(
    broken: str, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card, people = make_sale(new_sku(), units=3), Addresses()
    people.give(fill_line(card, buyers=3))
    road.settle_line(card)
    if broken:
        monkeypatch.setattr(mails, broken, lambda *_, **__: None)
    for _ in range(2):
        Mailer().work_once()
    turns = {"": 1, "_note_told": 2, "_queue": 0}[broken]
    assert list(people.queued.values()) == [[LINK] + [TURN] * turns] * 3
    assert (people.queued == people.wanted) == (not broken)
