"""Lets a reconciler delete much that was kept long enough while purchases are measured: old mails and acts of staff.
Never deletes by itself: the process that does it in a shop is the one that runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.utils import timezone
from post_office.models import Email

from loadtest.bench.harness.servers import Workspace
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.streams.mails import START_SECONDS, fill_queue
from shop.models import StaffAct

AGE = timedelta(days=5_000)


@contextmanager
def cleaning(place: Workspace, *, rows: int) -> Iterator[None]:
    """Run a reconciler that has `rows` old mails and as many old acts to delete, for the length of a `with` block.

    Raises LoadFailed when it does not begin, or has nothing left to delete at the end.
    """
    fill_queue(rows)
    Email.objects.update(created=timezone.now() - AGE)
    missing = rows - _old_acts()
    acts = (StaffAct(act="login", actor="benchmark", at=timezone.now() - AGE) for _ in range(missing))
    StaffAct.objects.bulk_create(acts, batch_size=1_000)
    with place.worker("reconciler"):
        deadline = time.monotonic() + START_SECONDS
        while Email.objects.count() == rows:
            if time.monotonic() > deadline:
                raise LoadFailed("the reconciler deleted nothing")
            time.sleep(0.1)
        yield
        if not Email.objects.exists():
            raise LoadFailed(f"{rows} mails were deleted before the round ended: keep more")


def _old_acts() -> int:
    return StaffAct.objects.filter(at__lte=timezone.now() - AGE).count()
