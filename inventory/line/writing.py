"""Changes a SKU's line: hands out batches, writes down what a COMMIT decided or changed, lets lost requests wait again.
Never decides, never admits: that is admission.py. Reading is reading.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog

from inventory.exceptions import LockLost, SaleNotPrimed
from inventory.records import Record, StockFigures, read_record
from inventory.redis import Argument, Client, ScriptCall, keys, run_script, run_scripts

log = structlog.get_logger(__name__)

MAX_HAND_OUTS = 5  # then a request lies in the dead letters (Q12)
MAX_CHANGES = 500
REFUSAL_TRIES = 3  # so often a dead letter's refusal is tried; then it is set aside and the line goes on


class Handed(NamedTuple):
    """A batch: kind is fresh, again (what a crashed holder left) or dead (one handed out too often)."""

    kind: str
    requests: list[tuple[str, Record]]


class Settled(NamedTuple):
    """One request whose outcome is committed, and its record after it."""

    request_id: str
    record: Record


def live_field(*, sale_id: int, buyer: str) -> str:
    """Return the field of the live-units hash that counts `buyer` in a sale."""
    return f"{sale_id}:{buyer}"


def _take_call(sku: str, *, token: str, call: int, batch: int, probe: bool = False) -> ScriptCall:
    args: list[Argument] = [token, call, batch, MAX_HAND_OUTS, MAX_HAND_OUTS + REFUSAL_TRIES, int(probe)]
    return "take", take_keys(sku), args


def take_keys(sku: str) -> list[str]:
    """Return the keys that scripts/line/take.lua declares."""
    own = (keys.lock, keys.line, keys.in_flight, keys.records, keys.stock, keys.hand_outs)
    return [make(sku) for make in (*own, keys.dead_letters, keys.dead_letter_notes, keys.aside, keys.sales)]


def settle_call(
    sku: str,
    *,
    figures: StockFigures,
    settled: Sequence[Settled],
    staying: Sequence[str] = (),
    token: str = "",
    call: int = 0,
) -> ScriptCall:
    """Return the script call that answers `settled` (after its COMMIT, never before) and puts `staying` back in line.

    call: of the take whose batch is answered; after a later take nobody is put back any more. The script returns how
    many it settled, or -1 when the lock `token` is lost.
    """
    own = (keys.lock, keys.in_flight, keys.records, keys.stock, keys.hand_outs, keys.live_units)
    script_keys = [make(sku) for make in (*own, keys.line, keys.aside, keys.ended_requests, keys.sales)]
    names = [*(name for name, _ in settled), *staying]
    texts = [*(record.text() for _, record in settled), *("" for _ in staying)]
    requests = json.dumps([names, texts, [record.quantity for _, record in settled]])
    channels = (keys.settled_channel(), keys.wake_channel())
    return "settle", script_keys, [token, sku, *channels, *figures, MAX_HAND_OUTS, call, requests]


def _handed(sku: str, reply: Any) -> Handed:
    if reply == -1:
        raise LockLost
    kind, aside, *flat = reply
    for name in aside.split():
        log.error("refusal not persisted; request set aside", action="dead_letter_set_aside", sku=sku, request=name)
    parts = iter(flat)
    return Handed(kind, [(name, _sound_record(name, text)) for name, text in zip(parts, parts, strict=True)])


def _sound_record(name: str, text: str) -> Record:
    try:
        return read_record(text)
    except (ValueError, KeyError) as error:
        raise ValueError(f"the record of request {name} is damaged: {text[:200]!r}") from error


def take(client: Client, sku: str, *, token: str, call: int, batch: int, probe: bool = False) -> Handed:
    """Take up to `batch` requests that can be decided now, under the lock `token`.

    call: rises with each take of this token. probe: take the first in line even if it must wait by what Redis knows.
    What a dead holder left in flight comes first: all together, then one at a time (S19).
    Raises LockLost, RedisUnavailable, ValueError when a record is damaged (that request ends in the dead letters).
    """
    name, script_keys, args = _take_call(sku, token=token, call=call, batch=batch, probe=probe)
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
) -> Handed:
    """Answer `settled` (after its COMMIT, never before) and take the next batch in the same round trip.

    call: of this take, one more than that of the take whose batch is answered. staying: who keeps its place.
    Raises LockLost, RedisUnavailable.
    """
    answer = settle_call(sku, token=token, call=call - 1, figures=figures, settled=settled, staying=staying)
    answered, handed = run_scripts(client, [answer, _take_call(sku, token=token, call=call, batch=batch)])
    if answered == -1:
        raise LockLost
    return _handed(sku, handed)


def publish_changes(client: Client, sku: str, *, figures: StockFigures, changed: Sequence[Settled]) -> int:
    """Publish to the line what a COMMIT changed: orders that ended, and the stock after it; needs no lock.

    Safe to repeat, and in any order: records only go forward, stock versions too. Returns how many records went
    forward. Raises RedisUnavailable; the reconciler then publishes it later.
    """
    done = 0
    for start in range(0, max(len(changed), 1), MAX_CHANGES):
        name, script_keys, args = settle_call(sku, figures=figures, settled=changed[start : start + MAX_CHANGES])
        done += int(run_script(client, name, keys=script_keys, args=args))
    return done


def restore(client: Client, sku: str, *, request_id: str, record: Record) -> bool:
    """Let a request wait again at the seq of its record; False when it is known already.

    Raises SaleNotPrimed, RedisUnavailable.
    """
    done = _restore(client, sku, [request_id, record.text()])
    if done == -1:
        raise SaleNotPrimed
    return bool(done)


def requeue(client: Client, sku: str, request_ids: Sequence[str]) -> int:
    """Put at most 500 requests that wait, and are in no place, back at their own seq; return how many were lost."""
    return max(0, _restore(client, sku, [part for name in request_ids for part in (name, "")]))


def _restore(client: Client, sku: str, pairs: Sequence[str]) -> int:
    makers = (keys.stock, keys.line, keys.records, keys.live_units, keys.in_flight, keys.dead_letters, keys.sales)
    args = [sku, keys.wake_channel(), *pairs]
    return int(run_script(client, "restore", keys=[make(sku) for make in makers], args=args))


def give_back(client: Client, sku: str, *, token: str, seen_fence: int = 0) -> None:
    """Leave the batch in flight without counting a hand-out: it was not at fault.

    seen_fence: what the stock row has seen; the next holder's fence is above it. Raises LockLost, RedisUnavailable.
    """
    script_keys = [keys.lock(sku), keys.stock(sku), keys.fence(sku)]
    if run_script(client, "give_back", keys=script_keys, args=[token, seen_fence, keys.FENCE_TTL_MS]) == -1:
        raise LockLost
