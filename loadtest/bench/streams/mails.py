"""Lets a mailer work through a long queue of mails while purchases are measured. Never hands a mail to anybody.

In a shop without a mail server a mail ends in the mailbox page, so that nothing slows the mailer but the queue itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from post_office.models import PRIORITY, STATUS, Email

from loadtest.bench.harness.servers import Workspace
from loadtest.bench.harness.timing import wait_for
from loadtest.bench.load.loop import LoadFailed

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
