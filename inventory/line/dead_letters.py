"""Lists the dead letters of a SKU's line, puts one back where that is truthful, or removes it from the list.
Never queues again what was decided (docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import structlog
from django.utils.translation import gettext_noop as _

from inventory.exceptions import InvalidRequest
from inventory.records import STANDBY_SCORE, record_or_none
from inventory.redis import Client, keys, run_commands, run_script, sending_once

log = structlog.get_logger(__name__)

MAX_LISTED = 1000
REASONS = {
    "unknown": _("there is no such dead letter"),
    "in_flight": _("its refusal is under way: try again in a few seconds"),
    "decided": _("its outcome was told to its buyer, and its units are free: the buyer may ask again"),
    "undecided": _("it must be refused before it leaves the list"),
    "damaged": _("its record cannot be read: discard it"),
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One request that was handed out too often. record: its text, '' when there is none."""

    request_id: str
    sku: str
    seq: int
    hand_outs: int
    since: datetime | None
    in_flight: bool
    record: str


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one letter: done, or the reason why nothing changed."""

    request_id: str
    done: bool
    reason: str


def dead_letters(client: Client, sku: str, *, request_ids: Sequence[str] | None = None) -> list[DeadLetter]:
    """Return the dead letters of `sku`, at most 1,000, in order of seq. Raises RedisUnavailable.

    request_ids: instead of that those of them that are dead letters, however many others there are, in their order.
    """
    scores = _scores(client, keys.checked_sku(sku), request_ids)
    if not scores:
        return []
    names = list(scores)
    commands = [
        ("HMGET", keys.dead_letter_notes(sku), *names),
        ("HMGET", keys.records(sku), *names),
        *(("ZSCORE", keys.in_flight(sku), name) for name in names),
    ]
    notes, records, *flights = run_commands(client, commands)
    return [
        DeadLetter(
            request_id=name,
            sku=sku,
            seq=int(float(seq)) % STANDBY_SCORE,
            hand_outs=_note(note)[0],
            since=_note(note)[1],
            in_flight=flight is not None,
            record=record or "",
        )
        for name, seq, note, record, flight in zip(names, scores.values(), notes, records, flights, strict=True)
    ]


def _scores(client: Client, sku: str, request_ids: Sequence[str] | None) -> dict[str, str | float]:
    if request_ids is None:
        (flat,) = run_commands(client, [("ZRANGE", keys.dead_letters(sku), 0, MAX_LISTED - 1, "WITHSCORES")])
        return dict(zip(flat[::2], flat[1::2], strict=True))
    scores = run_commands(client, [("ZSCORE", keys.dead_letters(sku), name) for name in request_ids])
    return {name: score for name, score in zip(request_ids, scores, strict=True) if score is not None}


def _note(text: str | None) -> tuple[int, datetime | None]:
    # A letter from before there were notes has none.
    if not text:
        return 0, None
    hand_outs, since_us = text.split("|")
    return int(hand_outs), datetime.fromtimestamp(int(since_us) / 1_000_000, tz=UTC)


def change_letters(
    client: Client, sku: str, request_ids: Sequence[str], *, mode: Literal["retry", "discard"], actor: str
) -> list[Done]:
    """Retry or discard letters of `sku`; say of each what became of it. Every one is logged with `actor`.

    retry: an undecided, sound request goes back to its place in line. discard: the letter leaves the list,
    if it is decided or its record cannot be read. Raises InvalidRequest (S16), RedisUnavailable.
    """
    keys.checked_sku(sku)
    if not actor:
        raise InvalidRequest("actor must be named")
    if not request_ids:
        raise InvalidRequest("request_ids must name at least one dead letter")
    return [_change(client, sku, name, mode=mode, actor=actor) for name in request_ids]


def _change(client: Client, sku: str, request_id: str, *, mode: str, actor: str) -> Done:
    own = (keys.dead_letters, keys.dead_letter_notes, keys.line, keys.in_flight, keys.records)
    script_keys = [make(sku) for make in (*own, keys.stock, keys.live_units, keys.aside)]
    (record,) = run_commands(client, [("HGET", keys.records(sku), request_id)])
    unreadable = record or "" if record_or_none(record) is None else ""
    # Sent again after a lost reply it would find no such letter, and say that nothing was done.
    answer = run_script(sending_once(client), "dead_letter", keys=script_keys, args=[mode, request_id, unreadable])
    reason = REASONS.get(answer, "")
    write = log.warning if reason else log.info
    write("dead letter changed", action=f"dead_letter_{mode}", sku=sku, request=request_id, actor=actor, answer=answer)
    return Done(request_id, done=not reason, reason=reason)
