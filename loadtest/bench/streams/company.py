"""Runs what purchases are measured alongside: a mailer with a long queue, and a reconciler that deletes much that was
kept long enough: old mails, acts of staff, and the buyers of past sales. Never sends or deletes by itself: the process
that does it in a shop is the one that runs.

In a shop without a mail server a mail ends in the mailbox page, so that nothing slows the mailer but the queue itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import connection
from django.utils import timezone
from post_office.models import PRIORITY, STATUS, Email

from loadtest.bench.age.past import write_past
from loadtest.bench.harness.servers import Workspace
from loadtest.bench.harness.timing import wait_for
from loadtest.bench.load.loop import LoadFailed
from shop.models import Order, Sale, StaffAct
from shop.orders.personal_data import FORGOTTEN

AGE = timedelta(days=5_000)
START_SECONDS = 40.0
SENDER, TEXT = "shop@localhost", "It is yours. Pay before the hold ends.\n" * 20


@contextmanager
def mailing(place: Workspace, *, queued: int) -> Iterator[None]:
    """Run a mailer that has `queued` mails to send, for the length of a `with` block.

    Raises LoadFailed when it does not begin, or has nothing left to send at the end.
    """
    fill_queue(queued)
    with place.worker("mailer"):
        wait_for(True, lambda: _waiting() < queued, seconds=START_SECONDS, what="the mailer has begun")
        yield
        if not _waiting():
            raise LoadFailed(f"{queued} mails were sent before the round ended: queue more")


def _waiting() -> int:
    return int(Email.objects.filter(status=STATUS.queued).count())


def fill_queue(count: int) -> None:
    """Let `count` mails wait, and no others be kept."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE post_office_email CASCADE")
    Email.objects.bulk_create(
        (
            Email(
                from_email=SENDER,
                to=[f"buyer-{number}@localhost"],
                subject="It is your turn",
                message=TEXT,
                status=STATUS.queued,
                priority=PRIORITY.medium,
            )
            for number in range(count)
        ),
        batch_size=1_000,
    )


def write_past_buyers(*, rounds: int, buyers: int) -> None:
    """Write a sale for each round that ended long ago, with so many buyers who are to be forgotten."""
    write_past(sales=rounds, orders=rounds * buyers, payments=rounds)
    ended = timezone.now() - AGE
    Sale.objects.filter(retired_at__isnull=False).update(opens_at=ended - timedelta(hours=1), closes_at=ended)


@contextmanager
def cleaning(place: Workspace, *, rows: int) -> Iterator[None]:
    """Run a reconciler that has `rows` old mails and as many old acts to delete, and as many buyers of the next past
    sale to forget, for the length of a `with` block.

    Raises LoadFailed when it does not begin, or has nothing left to delete or to forget at the end.
    """
    past = Sale.objects.filter(retired_at__isnull=False, buyers_forgotten_at=None).order_by("pk")[0]
    fill_queue(rows)
    Email.objects.update(created=timezone.now() - AGE)
    missing = rows - StaffAct.objects.filter(at__lte=timezone.now() - AGE).count()
    acts = (StaffAct(act="login", actor="benchmark", at=timezone.now() - AGE) for _ in range(missing))
    StaffAct.objects.bulk_create(acts, batch_size=1_000)
    with place.worker("reconciler"):
        wait_for(True, lambda: Email.objects.count() < rows, seconds=START_SECONDS, what="the reconciler has begun")
        yield
        if not Email.objects.exists():
            raise LoadFailed(f"{rows} mails were deleted before the round ended: keep more")
    forgotten = Order.objects.filter(sale=past, buyer__startswith=FORGOTTEN).count()
    if not 0 < forgotten < rows:
        raise LoadFailed(f"{forgotten} of {rows} buyers were forgotten in the round: some must be, and some be left")
    # The next round has a sale of its own: this one begins with those who are gone already.
    Sale.objects.filter(pk=past.pk).update(buyers_forgotten_at=timezone.now())
