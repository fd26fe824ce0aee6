"""Queues the mails that orders with an address call for, and sends what is queued, each at least once.

Any number of mailers may run: one works at a time. Never sends inside a transaction. What was sent is deleted by the
reconciler (workers/reconciler/retention.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from django.conf import settings
from django.db import connection
from post_office import mail
from post_office.models import Log

from inventory.fault_injection import fault_point
from inventory.heartbeats import BEAT_SECONDS
from inventory.postgres import AdvisoryLock
from inventory.telemetry.measures import Tally
from shop.orders import mails

# A look at so many addresses takes some milliseconds. Those of orders that are over can only be told of a refund.
OPEN_A_LOOK = 2000
OVER_A_LOOK = 500
MAILS = Tally("fairdrop_mails", "Mails by what came of them", label="outcome", known=("sent", "failed", "put_off"))


class Mailer:
    """One mailer. Between two steps it remembers how far it has looked.

    rest: waits after each batch, so that not even two mailers send more than one in that time. report_alive: called
    before each address with news, for many may have some at once, and from another thread while a batch is sent.
    """

    def __init__(
        self, *, rest: Callable[[], object] = lambda: None, report_alive: Callable[[], None] = lambda: None
    ) -> None:
        self._rest = rest
        self._report_alive = report_alive
        self._looked_at = {False: 0, True: 0}

    def work_once(self) -> int:
        """Queue the news of one page of addresses, send what is queued; return how many mails that were.

        In a shop without a mail server nothing is queued, and what is queued waits for one.
        """
        if not settings.MAIL_ON:
            return 0
        with alone() as is_alone:
            done = self._work() if is_alone else 0
            if done:
                self._rest()
            return done

    def _work(self) -> int:
        queued = self._queue_news(over=False, limit=OPEN_A_LOOK) + self._queue_news(over=True, limit=OVER_A_LOOK)
        if not mail.get_queued().exists():
            return queued
        mails.drop_late_mails()
        # One row for each failed try would be hundreds a mail while the server is away: of a mail that is not sent, the
        # last one stays.
        Log.objects.filter(email__in=mail.get_queued()).delete()
        fault_point("before_mail")
        with self._alive():
            sent, failed, put_off = mail.send_queued()
        for outcome, count in {"sent": sent, "failed": failed, "put_off": put_off}.items():
            MAILS.add(outcome, int(count))
        return queued + int(sent)

    def _queue_news(self, *, over: bool, limit: int) -> int:
        found, self._looked_at[over] = mails.find_news(over=over, after=self._looked_at[over], limit=limit)
        queued = 0
        for contact_id in found:
            self._report_alive()
            queued += mails.queue_news(contact_id)
        return queued

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Say that we live while a block lasts, no longer than a batch may take: one that hangs falls silent."""
        over, silent_at = Event(), time.monotonic() + settings.POST_OFFICE["BATCH_DELIVERY_TIMEOUT"]

        def speak() -> None:
            while not over.wait(BEAT_SECONDS) and time.monotonic() < silent_at:
                self._report_alive()

        thread = Thread(target=speak, name="mailer-alive", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def alone() -> Iterator[bool]:
    """Say whether this is the one mailer that works now; the lock goes with the database connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [AdvisoryLock.MAILER])
        (is_alone,) = cursor.fetchone()
        try:
            yield is_alone
        finally:
            if is_alone and connection.is_usable():
                cursor.execute("SELECT pg_advisory_unlock(%s)", [AdvisoryLock.MAILER])
