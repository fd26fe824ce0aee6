"""Lets Redis forget what only the database answers for: a whole SKU, or the retired sales of one that lives on.
Never forgets a request that is not decided; each step may be broken off and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from inventory.locks.lock import Lock
from inventory.locks.statistics import STATISTICS
from inventory.records import sale_id_of
from inventory.redis import Client, keys, run_commands, run_script
from inventory.redis.scan import pages
from inventory.states import WAITING_STATES

PAGE = 500  # a step of so many takes Redis a millisecond or two
WAITING_LETTERS = {state.letter for state in WAITING_STATES}


def has_waiting(client: Client, sku: str, *, sale_id: int) -> bool:
    """Say whether a request of a past sale is in line, in flight, or an undecided dead letter.

    Raises RedisUnavailable.
    """
    # There and back, as a request may move either way meanwhile: a settler takes it, gives it back or gives it up.
    return (
        _has_dead_letter(client, sku, sale_id)
        or any(any(_members_of(client, make(sku), sale_id)) for make in (keys.line, keys.in_flight, keys.line))
        or _has_dead_letter(client, sku, sale_id)
    )


def _has_dead_letter(client: Client, sku: str, sale_id: int) -> bool:
    for names in _members_of(client, keys.dead_letters(sku), sale_id):
        (records,) = run_commands(client, [("HMGET", keys.records(sku), *names)])
        if any((record or "q")[0] in WAITING_LETTERS for record in records):
            return True
    return False


def _members_of(client: Client, key: str, sale_id: int) -> Iterator[list[str]]:
    for page in pages(client, "ZSCAN", key, size=PAGE):
        names = [name for name, _ in page if sale_id_of(name) == sale_id]
        if names:
            yield names


def sales_known(client: Client, sku: str) -> set[int]:
    """Return the sales of `sku` that Redis knows. Raises RedisUnavailable."""
    (fields,) = run_commands(client, [("HKEYS", keys.sales(sku))])
    return {int(field.partition(":")[0]) for field in fields}


def skus_known(client: Client) -> set[str]:
    """Return the SKUs that workers look at, and every name that was ever locked. Raises RedisUnavailable."""
    skus, locked = run_commands(client, [("SMEMBERS", keys.skus()), ("SMEMBERS", keys.lock_names())])
    return {*skus, *locked}


def note_skus(client: Client, skus: Sequence[str]) -> None:
    """Let workers look at `skus`: one that was primed while it was being forgotten may be missing from their list."""
    if skus:
        run_commands(client, [("SADD", keys.skus(), *skus)])


def forget_sku(
    client: Client, sku: str, *, sale_ids: Collection[int], lock_ttl_ms: int, throttle: Callable[[], None]
) -> bool:
    """Unlink every key of `sku`; say whether it is forgotten.

    sale_ids: the sales that Redis knew before the database was asked and had none left; any other was made since.
    False: somebody waits in its line, a sale was made meanwhile, or another holds its lock; the next call may do it.
    The SKU leaves the list of SKUs last, so one that was forgotten by half is found again. throttle: called when all
    but the lists is forgotten. Raises RedisUnavailable.
    """
    with STATISTICS.without(client, sku):
        lock = Lock(client, sku, ttl_ms=lock_ttl_ms)
        if not lock.acquire():
            return False
        try:
            forgotten = run_script(client, "forget_sku", keys=keys.all_of(sku), args=[lock.token, *sale_ids]) == 1
        except BaseException:
            lock.end_hold()  # it ends by its TTL
            raise
        if not forgotten:
            lock.release()
            return False
        lock.end_hold()  # unlinked with everything else
    throttle()
    # Another process may have sent its lock counts meanwhile. They are unlinked last: a process that sends counts later
    # lists the name after them, and the reconciler finds it.
    listed = [("SREM", keys.skus(), sku), ("SREM", keys.lock_names(), sku)]
    run_commands(client, [*listed, ("UNLINK", keys.lock_statistics(sku))])
    return True


def forget_sales(client: Client, sku: str, *, sale_ids: Collection[int], throttle: Callable[[], None]) -> int:
    """Forget the decided requests of some sales of a SKU that lives on, then the sales; return how many requests.

    A sale with a request that waits stays known, and so is found again. throttle: called after each step.
    Raises RedisUnavailable.
    """
    gone, waiting = 0, set()
    for names in _requests_of(client, sku, sale_ids):
        gone += _forget_requests(client, sku, names)
        (left,) = run_commands(client, [("HMGET", keys.records(sku), *names)])
        waiting |= {sale_id_of(name) for name, record in zip(names, left, strict=True) if record}
        throttle()
    _forget_units(client, sku, set(sale_ids) - waiting)
    return gone


def _requests_of(client: Client, sku: str, sale_ids: Collection[int]) -> Iterator[list[str]]:
    for page in pages(client, "HSCAN", keys.records(sku), size=PAGE):
        names = [name for name, _ in page if sale_id_of(name) in sale_ids]
        if names:
            yield names


def _forget_requests(client: Client, sku: str, names: Sequence[str]) -> int:
    makers = (keys.records, keys.live_units, keys.ended_requests, keys.dead_letters, keys.dead_letter_notes)
    return int(run_script(client, "forget_requests", keys=[make(sku) for make in makers], args=names))


def _forget_units(client: Client, sku: str, sale_ids: Collection[int]) -> None:
    """Remove live units that no record bears out any more, what was counted for a sale, and the sales themselves."""
    makers = (keys.live_units, keys.ended_requests, keys.networks, keys.passes, keys.sales)
    for key in (make(sku) for make in makers):
        for page in pages(client, "HSCAN", key, size=PAGE):
            fields = [field for field, _ in page if int(field.partition(":")[0]) in sale_ids]
            if fields:
                run_commands(client, [("HDEL", key, *fields)])
