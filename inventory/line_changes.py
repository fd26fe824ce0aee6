"""Changes a SKU's line: hands out batches, writes down what a COMMIT decided or changed, lets lost requests wait again.
Never decides, never admits: that is admission.py. Reading is line.py.
Called by the settler (take, settle, give back), and by whoever has changed an order or a stock row (tell_changes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog

from inventory import keys
from inventory.exceptions import LockLost, SaleNotPrimed
from inventory.locks import FENCE_TTL_MS
from inventory.redis import Argument, Client, run_script, run_scripts
from inventory.tickets import Record, read_record

log = structlog.get_logger(__name__)

MOST_HAND_OUTS = 5  # then a request lies in the dead letters (Q12)
MOST_CHANGES = 500
REFUSAL_TRIES = 3  # so often a dead letter's refusal is tried; then it is set aside and the line goes on


class Handed(NamedTuple):
    """A batch: kind is fresh, again (what a crashed holder left) or dead (one handed out too often)."""

    kind: str
    requests: list[tuple[str, Record]]


class Settled(NamedTuple):
    """One request whose outcome is committed, and its record after it."""

    request_id: str
    record: Record


class StockFigures(NamedTuple):
    """The stock as the database has it after a commit; returning = held units that may still come back."""

    available: int
    held: int
    sold: int
    returning: int
    version: int


def live_field(*, sale_id: int, buyer: str) -> str:
    """Return the field of the live-units hash that counts `buyer` in a sale."""
    return f"{sale_id}:{buyer}"


def _take_call(sku: str, *, token: str, call: int, batch: int) -> tuple[str, Sequence[str], Sequence[Argument]]:
    script_keys = [
        keys.lock(sku),
        keys.line(sku),
        keys.in_flight(sku),
        keys.records(sku),
        keys.stock(sku),
        keys.hand_outs(sku),
        keys.dead_letters(sku),
        keys.dead_letter_notes(sku),
    ]
    return "take", script_keys, [token, call, batch, MOST_HAND_OUTS, MOST_HAND_OUTS + REFUSAL_TRIES, "line"]


def _settle_call(
    sku: str,
    *,
    token: str,
    call: int,
    figures: StockFigures,
    settled: Sequence[Settled],
    staying: Sequence[str],
    waits_for: str,
    waits_until_us: int,
) -> tuple[str, Sequence[str], Sequence[Argument]]:
    script_keys = [
        keys.lock(sku),
        keys.in_flight(sku),
        keys.records(sku),
        keys.stock(sku),
        keys.hand_outs(sku),
        keys.live_units(sku),
        keys.line(sku),
    ]
    args: list[Argument] = [token, sku, keys.settled_channel(), *figures, waits_for, waits_until_us, MOST_HAND_OUTS]
    args += [call, *_changed(settled)]
    for name in staying:
        args += (name, "", 0, "")
    return "settle", script_keys, args


def _changed(settled: Sequence[Settled]) -> list[Argument]:
    flat: list[Argument] = []
    for name, record in settled:
        flat += (name, record.text(), record.quantity, live_field(sale_id=record.sale_id, buyer=record.buyer))
    return flat


def _handed(sku: str, reply: Any) -> Handed:
    if reply == -1:
        raise LockLost
    kind, aside, *flat = reply
    for name in aside.split():
        log.error("not even its refusal could be written", action="dead_letter_set_aside", sku=sku, request=name)
    parts = iter(flat)
    return Handed(kind, [(name, _sound_record(name, text)) for name, text in zip(parts, parts, strict=True)])


def _sound_record(name: str, text: str) -> Record:
    try:
        return read_record(text)
    except (ValueError, KeyError) as error:
        raise ValueError(f"the record of request {name} is damaged: {text[:200]!r}") from error


def take(client: Client, sku: str, *, token: str, call: int, batch: int) -> Handed:
    """Take up to `batch` requests under the lock `token`; `call` rises with each take of this token.

    What a dead holder left in flight comes first: all together, then one at a time (S19).
    Raises LockLost, RedisUnavailable, ValueError when a record is damaged (that request ends in the dead letters).
    """
    name, script_keys, args = _take_call(sku, token=token, call=call, batch=batch)
    return _handed(sku, run_script(client, name, keys=script_keys, args=args))


def settle_and_take(
    client: Client,
    sku: str,
    *,
    token: str,
    figures: StockFigures,
    settled: Sequence[Settled],
    call: int,
    batch: int,
    staying: Sequence[str] = (),
    waits_for: str = "",
    waits_until_us: int = 0,
) -> Handed:
    """Answer `settled` (after its COMMIT, never before) and take the next batch in the same round trip.

    call: of this take, one more than that of the take whose batch is answered.
    staying: who keeps its place, because the line `waits_for` something (see allocation.py), until `waits_until_us`
    (Unix µs) at most.
    Raises LockLost, RedisUnavailable.
    """
    answered, handed = run_scripts(
        client,
        [
            _settle_call(
                sku,
                token=token,
                call=call - 1,
                figures=figures,
                settled=settled,
                staying=staying,
                waits_for=waits_for,
                waits_until_us=waits_until_us,
            ),
            _take_call(sku, token=token, call=call, batch=batch),
        ],
    )
    if answered == -1:
        raise LockLost
    return _handed(sku, handed)


def settle(
    client: Client,
    sku: str,
    *,
    token: str,
    call: int,
    figures: StockFigures,
    settled: Sequence[Settled],
    staying: Sequence[str] = (),
    waits_for: str = "",
    waits_until_us: int = 0,
) -> int:
    """Answer `settled` without taking more; return how many this call settled.

    call: of the take whose batch is answered; behind a later take nobody who stays is put back any more.
    Raises LockLost, RedisUnavailable.
    """
    name, script_keys, args = _settle_call(
        sku,
        token=token,
        call=call,
        figures=figures,
        settled=settled,
        staying=staying,
        waits_for=waits_for,
        waits_until_us=waits_until_us,
    )
    answered = run_script(client, name, keys=script_keys, args=args)
    if answered == -1:
        raise LockLost
    return int(answered)


def tell_changes(client: Client, sku: str, *, figures: StockFigures, changed: Sequence[Settled]) -> int:
    """Tell the line what a COMMIT changed: orders that ended, and the stock after it; needs no lock.

    Safe to repeat, and in any order: records only go forward, stock versions too. Returns how many records went
    forward. Raises RedisUnavailable; the reconciler then tells it later.
    """
    script_keys = [
        keys.stock(sku),
        keys.records(sku),
        keys.live_units(sku),
        keys.line(sku),
        keys.in_flight(sku),
        keys.dead_letters(sku),
    ]
    done = 0
    for start in range(0, max(len(changed), 1), MOST_CHANGES):
        args: list[Argument] = [sku, keys.settled_channel(), keys.wake_channel(), *figures]
        args += _changed(changed[start : start + MOST_CHANGES])
        done += int(run_script(client, "change", keys=script_keys, args=args))
    return done


def restore(client: Client, sku: str, *, request_id: str, record: Record) -> bool:
    """Let a request wait again at the seq of its record; False when it is known already.

    Raises SaleNotPrimed, RedisUnavailable.
    """
    script_keys = [keys.stock(sku), keys.line(sku), keys.records(sku), keys.live_units(sku)]
    args: list[Argument] = [sku, keys.wake_channel(), request_id, record.seq, record.quantity, record.sale_id]
    done = run_script(client, "restore", keys=script_keys, args=[*args, record.buyer])
    if done == -1:
        raise SaleNotPrimed
    return bool(done)


def give_back(client: Client, sku: str, *, token: str, seen_fence: int = 0) -> None:
    """Leave the batch in flight without counting a hand-out: it was not at fault.

    seen_fence: what the stock row has seen; the next holder's fence is above it. Raises LockLost, RedisUnavailable.
    """
    script_keys = [keys.lock(sku), keys.stock(sku), keys.fence(sku)]
    if run_script(client, "give_back", keys=script_keys, args=[token, seen_fence, FENCE_TTL_MS]) == -1:
        raise LockLost
