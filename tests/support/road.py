"""Walks the road of a request step by step: ask, take, settle. Uses the real scripts and the real settlement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from psycopg import Error
from psycopg.pq import TransactionStatus

from inventory import redis
from inventory.exceptions import LockLost
from inventory.line import admission, writing
from inventory.line.admission import Answer, Ask, SaleLine
from inventory.locks.lock import Lock
from inventory.postgres import Connection, connect
from inventory.records import Record, StockFigures, request_id
from inventory.redis import keys
from inventory.states import State
from shop.sales.catalogue import SaleCard
from tests.support.waiting import wait_until
from workers.settlement import Settlement, settle_batch
from workers.settler import Settler

BATCH = 500
IN_TRANSACTION = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
# So long that a holder keeps its lock also while the machine stands still; and how long a settler's lives here.
LOCK_TTL_MS, SETTLER_LOCK_TTL_MS = 60_000, 20_000


def ask(card: SaleCard, buyer: str, *, quantity: int = 1, key: str = "", standby: bool = False) -> Ask:
    """Return the wish of `buyer`, named as the shop names it."""
    name = request_id(sale_id=card.sale_id, request_key=card.request_id_key(), buyer=buyer, idempotency_key=key)
    return Ask(name, buyer, quantity, standby=standby)


def admit(card: SaleCard, *asks: Ask) -> list[Answer]:
    """Ask for all `asks` in one call."""
    return admission.admit(redis.connect(), SaleLine(card.sale_id, card.sku), asks)


def queue(card: SaleCard, *buyers: str) -> list[str]:
    """Let each of `buyers` ask for one unit; return the request ids. A line that was full opens a moment later."""
    asks = [ask(card, buyer) for buyer in buyers]
    wait_until_reopened(card)
    assert {answer.code for answer in admit(card, *asks)} == {admission.Code.ADMITTED}
    return [each.request_id for each in asks]


def wait_until_reopened(card: SaleCard) -> None:
    """Return when a line that was full, and has room, does not wait any more until no process remembers it as full."""

    def opened() -> bool:
        admit(card, ask(card, "too-many", quantity=1000))  # refused, but the script looks whether there is room
        reopens, now = run(("HGET", keys.stock(card.sku), "reopens_us"), ("TIME",))
        return int(reopens or 0) <= int(now[0]) * 1_000_000 + int(now[1])

    wait_until(opened)


def request(
    card: SaleCard, buyer: str, *, seq: int, quantity: int = 1, key: str = "", version: int | None = None
) -> tuple[str, Record]:
    """Return a request as `take` would hand it out, without a line; version: of its terms, by default the sale's."""
    named = card.terms_version if version is None else version
    record = Record(State.QUEUED, seq, quantity, card.sale_id, buyer, terms_version=named)
    return ask(card, buyer, quantity=quantity, key=key).request_id, record


def take(lock: Lock, *, call: int = 1, batch: int = BATCH, probe: bool = False) -> writing.Handed:
    """Take from the line of the locked SKU."""
    return writing.take(redis.connect(), lock.name, token=lock.token, call=call, batch=batch, probe=probe)


def answer_batch(client: redis.Client, sku: str, *, token: str, **batch: Any) -> int:
    """Answer a batch without taking more, and keep the lock; return how many were settled. Raises LockLost."""
    name, script_keys, args = writing.settle_call(sku, token=token, **batch)
    answered = int(redis.run_script(client, name, keys=script_keys, args=args))
    if answered == -1:
        raise LockLost
    return answered


def held_lock(sku: str) -> Lock:
    """Return the lock of `sku`, taken by a new holder."""
    lock = Lock(redis.connect(), sku, ttl_ms=LOCK_TTL_MS)
    assert lock.acquire()
    return lock


def settle_line(card: SaleCard, *, batch: int = BATCH) -> list[Settlement]:
    """Settle everything in the line of a sale's SKU, as a settler does."""
    client, done = redis.connect(), []
    with own_connection() as connection, Lock(client, card.sku, ttl_ms=LOCK_TTL_MS) as lock:
        handed = take(lock, batch=batch)
        while handed.requests:
            settlement = settle_batch(connection, sku=card.sku, fence=lock.fence, requests=handed.requests)
            done.append(settlement)
            handed = writing.settle_and_take(
                client,
                card.sku,
                token=lock.token,
                **settlement._asdict(),
                call=len(done) + 1,
                batch=batch,
            )
    return done


def answered(handed: writing.Handed, state: State) -> list[writing.Settled]:
    """Return the requests of a batch as if all had been decided as `state`."""
    return [
        writing.Settled(
            name,
            record._replace(state=state),
        )
        for name, record in handed.requests
    ]


def figures(*, available: int = 0, held: int = 0, version: int) -> StockFigures:
    """Return stock figures of one version."""
    return StockFigures(available=available, held=held, sold=0, version=version)


@contextmanager
def own_connection() -> Iterator[Connection]:
    """Open a worker's connection for the length of a block; what it has locked is free when the block has ended."""
    connection = connect()
    try:
        yield connection
        with suppress(Error):  # the test may have ended the connection
            # Of a closed connection the server frees nothing before it looks.
            if connection.info.transaction_status in IN_TRANSACTION:
                connection.execute("ROLLBACK")
            connection.execute("SELECT pg_advisory_unlock_all()")
    finally:
        connection.close()


@contextmanager
def settler(
    *, batch: int = BATCH, lock_ttl_ms: int = SETTLER_LOCK_TTL_MS, stopping: Any = lambda: False
) -> Iterator[Settler]:
    """Return a real settler; its connection ends with the block."""
    worker = Settler(redis.connect(), batch=batch, lock_ttl_ms=lock_ttl_ms, stopping=stopping)
    try:
        yield worker
    finally:
        worker.close()


def run(*commands: Sequence[str | int]) -> list[Any]:
    """Send plain commands to the tests' Redis."""
    return redis.run_commands(redis.connect(), commands)


def rewrite_sale(card: SaleCard, **parts: str | int) -> None:
    """Change what Redis keeps of a sale: state, opening, end, limit, revision."""
    (text,) = run(("HGET", keys.sales(card.sku), card.sale_id))
    fields = text.split("|")
    for name, value in parts.items():
        fields[{"state": 0, "opens_us": 1, "closes_us": 2, "limit": 3, "revision": 5}[name]] = str(value)
    run(("HSET", keys.sales(card.sku), card.sale_id, "|".join(fields)))


def keys_of(card: SaleCard) -> list[str]:
    """Return every key that Redis keeps of a sale and its SKU, the lock's left out."""
    makers = (keys.line, keys.in_flight, keys.records, keys.live_units, keys.stock, keys.hand_outs)
    makers += (keys.dead_letters, keys.aside, keys.ended_requests, keys.networks, keys.sales)
    return [make(card.sku) for make in makers]


def snapshot(card: SaleCard) -> dict[str, Any]:
    """Return what Redis knows of a sale and its SKU, but for how often it changed and who was told to wait."""
    known = {key: _content(key) for key in keys_of(card)}
    for field in ("changes", "waitlisted_to"):
        (known[keys.stock(card.sku)] or {}).pop(field, None)
    return known


def _content(key: str) -> Any:
    (kind,) = run(("TYPE", key))
    if kind == "none":
        return None
    return run({"hash": ("HGETALL", key), "zset": ("ZRANGE", key, 0, -1, "WITHSCORES")}[kind])[0]


def forget(card: SaleCard) -> None:
    """Let Redis lose everything about a sale and its SKU, fence included."""
    run(("DEL", *keys_of(card), keys.lock(card.sku), keys.fence(card.sku)), ("SREM", keys.skus(), card.sku))
