"""Makes a split brain: a replica promoted while the old primary still takes requests and hands out locks.
Never lets the two speak again: each believes it is the only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from django.test.utils import override_settings

from inventory import redis
from inventory.line import admission, writing
from inventory.line.writing import Handed
from inventory.locks.lock import Lock
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import own_store
from tests.support.road import LOCK_TTL_MS, answer_batch, ask, own_connection
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until
from workers.embedded.valkey import start_valkey
from workers.settlement import settle_batch


@dataclass(frozen=True)
class Split:
    """A sale that two primaries sell: the old one, and the new one that the shop was switched to."""

    card: SaleCard
    old: redis.Client
    new: redis.Client
    old_url: str
    new_url: str

    def ask_at(self, client: redis.Client, *buyers: str) -> None:
        """Let buyers into the line of one primary."""
        wishes = [ask(self.card, buyer) for buyer in buyers]
        line = admission.SaleLine(self.card.sale_id, self.card.sku)
        answers = admission.admit(client, line, wishes)
        if answers[0].code == admission.Code.NOT_PRIMED:  # it has become the primary, and must be told so
            with override_settings(REDIS_URL=self.old_url if client is self.old else self.new_url):
                priming.prime_sale(self.card.slug)
            answers = admission.admit(client, line, wishes)
        assert {answer.code for answer in answers} == {admission.Code.ADMITTED}

    def take_at(self, client: redis.Client) -> tuple[Lock, Handed]:
        """Become the holder at one primary, and take its whole line."""
        lock = Lock(client, self.card.sku, ttl_ms=LOCK_TTL_MS)
        assert lock.acquire()
        return lock, writing.take(client, self.card.sku, token=lock.token, call=1, batch=100)

    def settle_at(self, client: redis.Client, lock: Lock, handed: Handed) -> None:
        """Settle what was taken, and answer it. Raises FenceRefused."""
        with own_connection() as connection:
            done = settle_batch(connection, sku=self.card.sku, fence=lock.fence, requests=handed.requests)
        answer_batch(client, self.card.sku, token=lock.token, call=1, **done._asdict())

    def both_hold(self, *, at_old: Sequence[str], at_new: Sequence[str]) -> tuple[tuple[Lock, Handed], ...]:
        """Let each primary admit buyers and hand them to a holder of its own; the old one's came first."""
        self.ask_at(self.old, *at_old)
        old = self.take_at(self.old)
        self.ask_at(self.new, *at_new)
        return old, self.take_at(self.new)


def client_of(url: str) -> redis.Client:
    """Return a client of the server at `url`."""
    with override_settings(REDIS_URL=url):
        return redis.connect()


def follow(client: redis.Client, url: str) -> None:
    """Make the server of `client` a replica of the one at `url`; return when it has everything."""
    primary = urlsplit(url)
    redis.run_commands(
        client,
        [("CONFIG", "SET", "masterauth", str(primary.password)), ("REPLICAOF", "127.0.0.1", str(primary.port))],
    )
    wait_until(lambda: client.info("replication")["master_link_status"] == "up")


@contextmanager
def split_brain(sku: str, *, units: int, folder: Path) -> Iterator[Split]:
    """Open a sale on one primary, promote its replica behind its back, and switch the shop to that."""
    with ExitStack() as running:
        old, new = (running.enter_context(own_store(start_valkey, folder / name)) for name in ("old", "new"))
        old_client, new_client = client_of(old.url), client_of(new.url)
        redis.run_commands(old_client, [("CONFIG", "SET", "repl-diskless-sync-delay", 0)])
        follow(new_client, old.url)
        with override_settings(REDIS_URL=old.url):
            card = make_sale(sku, units=units)
        written = int(old_client.info("replication")["master_repl_offset"])
        wait_until(lambda: int(new_client.info("replication")["slave_repl_offset"]) >= written, what="it has all")
        redis.run_commands(new_client, [("REPLICAOF", "NO", "ONE")])
        running.enter_context(override_settings(REDIS_URL=new.url))
        yield Split(card, old_client, new_client, old.url, new.url)
