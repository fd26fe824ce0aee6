"""Lets a reconciler delete much that was kept long enough while purchases are measured: old mails, acts of staff, and
the buyers of past sales. Never deletes by itself: the process that does it in a shop is the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.utils import timezone
from post_office.models import Email

from loadtest.bench.age.past import write_past
from loadtest.bench.harness.servers import Workspace
from loadtest.bench.harness.timing import wait_for
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.streams.mails import START_SECONDS, fill_queue
from shop.models import Order, Sale, StaffAct
from shop.orders.personal_data import FORGOTTEN

AGE = timedelta(days=5_000)


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
