"""Shows the shop as a whole to Prometheus: each line, the stock, the workers, Redis, the certificate, how old that is.
Asks no store when it is looked at, but shows what was read. All reconcilers show the same: never add them up.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from threading import Thread
from typing import NamedTuple
from urllib.parse import urlsplit

import structlog
from django.conf import settings

from inventory.exceptions import RedisUnavailable
from inventory.heartbeats import Worker, workers
from inventory.line.snapshot import StockLook
from inventory.records import record_or_none
from inventory.redis import Client, memory
from inventory.states import State
from inventory.telemetry.families import family, labels
from shop.models import Sale

log = structlog.get_logger(__name__)

REDIS_SECONDS = 1.0
CERTIFICATE_SECONDS = 600.0
HANDSHAKE_SECONDS = 5.0
# Every shop has the first; it has the others if its settings say so, or once one of them was heard of.
ALWAYS = ("settler", "expirer", "payments", "reconciler")
PERHAPS = ("mailer", "notary")
UNIT_STATES = ("available", "held", "sold")
# More live SKUs than this cost a page what their labels cost.
MAX_KEPT_SKUS = 4096
BY_SKU = (
    ("fairdrop_line_undecided", "Requests that wait", "undecided"),
    ("fairdrop_line_oldest_seconds", "How long the first that could be decided has waited", "oldest_seconds"),
    (
        "fairdrop_returned_unit_idle_seconds",
        "How long a unit that came back has been free while somebody waits for it",
        "idle_seconds",
    ),
    ("fairdrop_line_dead_letters", "Dead letters nobody has looked at", "dead_letters"),
)


class Seen(NamedTuple):
    """A SKU as it was last read. oldest_seconds: how long the first that could be decided has waited for that."""

    units: dict[str, int]
    undecided: int
    oldest_seconds: float
    idle_seconds: float
    dead_letters: int


class Gauges:
    """What one reconciler shows. Its own thread writes, the server's threads read: each value is replaced whole."""

    def __init__(self) -> None:
        self._skus: dict[str, Seen] = {}
        self._ready_since: dict[str, float] = {}
        self._idle_since: dict[str, float] = {}
        self._seen_at = time.monotonic()
        self._workers: list[Worker] = []
        self._redis_at = float("-inf")
        self._expected = [*ALWAYS]
        self._certificate_ends: float | None = None
        self._open_alarms: Callable[[], int] = lambda: 0

    def watch(self, public_url: str, *, open_alarms: Callable[[], int]) -> None:
        """Show the certificate of the shop's address, if it has one, how many alarms are open, and missing workers."""
        self._open_alarms = open_alarms
        self._expect(kind for kind, is_on in zip(PERHAPS, (settings.MAIL_ON, settings.SALE_LOG), strict=True) if is_on)
        if urlsplit(public_url).scheme == "https":
            Thread(target=self._keep_certificate, args=[public_url], name="certificate", daemon=True).start()

    def note(self, sales: Sequence[Sale], looks: dict[str, StockLook]) -> None:
        """Take over a look at the lines of `sales`; without any, Redis is away, and what is shown grows old."""
        if sales and not looks:
            return
        now = time.monotonic()
        by_sku = {sale.stock.sku: sale for sale in sales}
        self._skus = {sku: self._seen(by_sku[sku], look, now=now) for sku, look in looks.items() if sku in by_sku}
        for since in (self._ready_since, self._idle_since):
            for sku in since.keys() - self._skus.keys():
                del since[sku]
        self._seen_at = now

    def _seen(self, sale: Sale, look: StockLook, *, now: float) -> Seen:
        stock, line, first = sale.stock, look.line, record_or_none(look.line.first_record)
        is_ready = first is not None and not line.waits_for and look.oldest_seconds is not None
        # The record of one who was told "waitlisted" says "queued": the line counts those who were told.
        came_back = first is not None and (line.waitlisted > 0 or first.state is State.STANDBY)
        is_idle = came_back and first is not None and not line.waits_for and line.available >= first.quantity
        # A unit may have come back, or a sale that was paused have ended, for one who had waited for minutes: only from
        # then on it could be decided.
        waited = came_back or line.sale.startswith("paused|")
        oldest = (look.oldest_seconds or 0.0) if is_ready else 0.0
        ready_for = _lasted(self._ready_since, stock.sku, is_ready, now=now)
        return Seen(
            units={state: getattr(stock, state) for state in UNIT_STATES},
            undecided=line.undecided,
            oldest_seconds=min(oldest, ready_for) if waited else oldest,
            idle_seconds=_lasted(self._idle_since, stock.sku, is_idle, now=now),
            dead_letters=line.dead_letters,
        )

    def look_at_redis(self, client: Client) -> None:
        """Read who lives, and how full it is, if the last look is too old; a Redis that is away changes nothing."""
        if time.monotonic() - self._redis_at < REDIS_SECONDS:
            return
        self._redis_at = time.monotonic()
        try:
            memory.look(client)
            self._workers = workers(client)
            self._expect(worker.name for worker in self._workers if worker.name in PERHAPS)
        except RedisUnavailable as error:
            log.info("Redis not looked at", action="redis_retry", error=repr(error.__cause__))

    def _expect(self, kinds: Iterable[str]) -> None:
        """Show these kinds from now on, also when none of them is left."""
        self._expected = sorted({*self._expected, *kinds})

    def _keep_certificate(self, public_url: str) -> None:
        while True:
            ends = certificate_end(public_url)
            if ends is not None:  # what was seen before stays true while nobody answers
                self._certificate_ends = ends
            time.sleep(CERTIFICATE_SECONDS)

    def collect(self) -> Iterator[str]:
        """Yield a gauge for each figure."""
        seen = [(*_labels_of(sku), each) for sku, each in list(self._skus.items())]
        units = [(states[state], count) for _, states, each in seen for state, count in each.units.items()]
        yield family("fairdrop_units", "Units by the database", samples=units)
        for name, about, figure in BY_SKU:
            yield family(name, about, samples=[(which, getattr(each, figure)) for which, _, each in seen])
        yield from self._whole()

    def _whole(self) -> Iterator[str]:
        alive, silent = dict.fromkeys(self._expected, 0), dict.fromkeys(self._expected, 0)
        for worker in list(self._workers):
            counts = alive if worker.alive else silent
            counts[worker.name] = counts.get(worker.name, 0) + 1
        for name, about, counts in (
            ("fairdrop_workers_alive", "Worker processes that spoke within five seconds", alive),
            ("fairdrop_workers_silent", "Worker processes that did not, and did not end in order", silent),
        ):
            yield family(name, about, samples=[(labels(worker=kind), count) for kind, count in counts.items()])
        yield from _memory()
        age = round(time.monotonic() - self._seen_at, 2)
        yield family("fairdrop_look_age_seconds", "Since the lines were read", samples=[("", age)])
        yield family("fairdrop_open_alarms", "Differences that need a person", samples=[("", self._open_alarms())])
        if self._certificate_ends is not None:
            text = "When the certificate of the shop's address ends, 0 when it is not valid now"
            yield family("fairdrop_certificate_end_seconds", text, samples=[("", self._certificate_ends)])


@lru_cache(maxsize=MAX_KEPT_SKUS)
def _labels_of(sku: str) -> tuple[str, dict[str, str]]:
    """Return the labels of a SKU, and those of its units by state; made once, for they cost as much as a line."""
    return labels(sku=sku), {state: labels(sku=sku, state=state) for state in UNIT_STATES}


def _memory() -> Iterator[str]:
    seen = [(labels(node=node), each) for node, each in list(memory.WATCH.seen.items())]
    used = [(node, each.used_bytes) for node, each in seen]
    yield family("fairdrop_redis_used_bytes", "Memory that Redis counts as used", samples=used)
    limits = [(node, each.max_bytes) for node, each in seen]
    yield family("fairdrop_redis_max_bytes", "maxmemory of Redis, 0 for no limit", samples=limits)


def _lasted(since: dict[str, float], sku: str, is_so: bool, *, now: float) -> float:
    """Return for how long `is_so` has been said of a SKU at each look, 0 when it is not so."""
    if not is_so:
        since.pop(sku, None)
        return 0.0
    return now - since.setdefault(sku, now)


def certificate_end(public_url: str) -> float | None:
    """Return when the certificate of an https address ends (seconds since 1970), 0 when it is not valid.

    None when the address does not answer: that is another alarm's.
    """
    address = urlsplit(public_url)
    host, port = address.hostname or "", address.port or 443
    try:
        with (
            socket.create_connection((host, port), timeout=HANDSHAKE_SECONDS) as raw,
            ssl.create_default_context().wrap_socket(raw, server_hostname=host) as connection,
        ):
            given = connection.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        log.error("the certificate is not valid", action="certificate_invalid", error=str(error))
        return 0.0
    except OSError as error:
        log.warning("no certificate seen", action="certificate_unseen", error=str(error))
        return None
    return float(ssl.cert_time_to_seconds(str(given["notAfter"])))


GAUGES = Gauges()
