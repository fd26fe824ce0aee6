"""Keeps the demo's shop alive: a numbered edition of a print goes on sale every two minutes, for two minutes.
Never makes an edition twice, also after a restart: what is there says what comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.db.models.query import QuerySet
from django.utils import timezone

from inventory.locks.lock import Lock
from inventory.redis import Client
from shop.models import Sale
from workers.demo.data import Goods, seed

EVERY = timedelta(minutes=2)
FIRST_IN = timedelta(seconds=45)
UNITS = 12
# Short, so that units come back and go to the next in line while one watches.
HOLD_SECONDS = 25
# This shop decides a crowd sooner than a person can look. Each edition's line stands still for so long after its
# opening, because we hold its lock: so there is a queue to see, and a held lock in the control room.
STILL = timedelta(seconds=6)
LEAD = timedelta(seconds=1)
PREFIX = "print-"


class Editions:
    """One run of them. client: for the lock; now: the clock."""

    def __init__(self, client: Client, *, lock_ttl_ms: int, now: Callable[[], datetime] = timezone.now) -> None:
        self._client = client
        self._lock_ttl_ms = lock_ttl_ms
        self._now = now
        self._lock: Lock | None = None
        self._still_until = now()

    def work_once(self) -> int:
        """Do what is due; return how much it was. Raises RedisUnavailable."""
        now = self._now()
        coming = next_edition(now)
        made = seed((coming,), now=now) if coming else []
        self._stand_still(now)
        return len(made)

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _stand_still(self, now: datetime) -> None:
        if self._lock is not None:
            if now >= self._still_until:
                self.close()
            return
        opening = editions().filter(opens_at__gt=now - STILL, opens_at__lte=now + LEAD, operator_state="on").first()
        if opening is not None:
            lock = Lock(self._client, opening.stock.sku, ttl_ms=self._lock_ttl_ms)
            if lock.acquire():
                self._lock, self._still_until = lock, opening.opens_at + STILL


def editions() -> QuerySet[Sale]:
    """Return the sales of all editions, the newest first."""
    return Sale.objects.select_related("stock").filter(slug__regex=rf"^{PREFIX}\d+-drop$").order_by("-opens_at")


def next_edition(now: datetime) -> Goods | None:
    """Return the edition that is to be made now; None while one is coming."""
    newest = editions().first()
    if newest is None:
        return edition(1, opens_in=FIRST_IN)
    if newest.opens_at > now:
        return None
    opens_in = newest.opens_at + EVERY - now
    # After a pause of ours nobody catches up: the next one opens with the warning of the first.
    number = int(newest.stock.sku.removeprefix(PREFIX)) + 1
    return edition(number, opens_in=opens_in if opens_in > timedelta() else FIRST_IN)


def edition(number: int, *, opens_in: timedelta) -> Goods:
    """Return the goods of one edition."""
    return Goods(
        slug=f"{PREFIX}{number}",
        title=f"Linocut, edition {number}",
        tagline="Twelve prints, numbered by hand",
        description="A new block every two minutes: twelve prints are pulled, then it is washed and put away. "
        "This is the sale to watch: others ask alongside you, and some of them pay.",
        chinese=(
            f"麻胶版画第 {number} 版",
            "十二张，手工编号",
            "每两分钟刻一块新版：印十二张，然后洗净收起。适合观看的发售：会有人与你同时排队，其中一些会付款。",
        ),
        list_price="60.00",
        price="36.00",
        units=UNITS,
        picture="print",
        opens_in=opens_in,
        open_for=EVERY,
        hold_seconds=HOLD_SECONDS,
        line_capacity=2_000,
    )
