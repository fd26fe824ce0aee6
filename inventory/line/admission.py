"""Admits a batch of requests into a SKU's line by one atomic script, through an async and a sync call.
Never decides about stock: that is settlement.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from django.conf import settings

from inventory.exceptions import RedisUnavailable
from inventory.redis import (
    Argument,
    AsyncClient,
    Client,
    keys,
    run_commands,
    run_commands_async,
    run_script,
    run_script_async,
)
from inventory.redis.scripts import script_text
from inventory.states import STATE_OF_LETTER, State

# One script call stays short, so that nobody behind it waits long (pitfall Q15).
MAX_PER_CALL = 1000
# So many requests of one buyer may end unsold in one sale, however they end: to hold for nothing costs, and what Redis
# keeps of a buyer is bounded. Of a network every unit that it is let in for counts, also one that came back.
MAX_ENDED_REQUESTS: int = settings.MAX_ENDED_REQUESTS
# So many requests of one line may be on standby: whenever a unit is free, all of them may have to be looked at.
MAX_STANDBY = 1000
# A line that was full opens so much later: longer than any process answers "sold out" from memory.
REOPENING_US = 300_000
NO_PASS, NO_CODE, NO_EMAIL = "-", "!", "@"


# Stands for a network from which nobody is let in any more; a request of before is answered as before.
REVOKED = "!"


class Ask(NamedTuple):
    """One buyer's wish, as the script gets it. terms_version: of the terms they were shown, 0 when they named none.

    standby: without room in the line, it waits on standby for what comes back. network: from which it came, '' when
    that is not known: then no network is counted; REVOKED: one of which nobody is let in. pass_id: of the pass that
    lets it in, NO_PASS when it needs one and has none that is good, NO_CODE when that is so of a code, NO_EMAIL of a
    verified e-mail, '' when it needs none. entry: stands for the e-mail that lets in one request alone, '' for none.
    early: NO_CODE or NO_EMAIL when for want of it the request is let in only once the sale is everybody's.
    """

    request_id: str
    buyer: str
    quantity: int
    terms_version: int = 0
    standby: bool = False
    network: str = ""
    pass_id: str = ""
    entry: str = ""
    early: str = ""


class Code(IntEnum):
    """What the script answers; KNOWN_BEFORE + a letter's byte means: admitted earlier, in that state now."""

    ADMITTED = 1
    SOLD_OUT = 2
    LIMIT_REACHED = 3
    NOT_OPEN = 4
    PAUSED = 5
    CLOSED = 6
    NOT_PRIMED = 7
    OTHER_QUANTITY = 8
    TERMS_CHANGED = 9
    TERMS_UNKNOWN = 10
    TOO_MANY_ENDED = 11
    LINE_FULL = 12
    ON_STANDBY = 13
    NETWORK_LIMITED = 14
    PASS_REQUIRED = 15
    PASS_SPENT = 16
    CODE_REQUIRED = 17
    NETWORK_REVOKED = 18
    EMAIL_REQUIRED = 19
    EMAIL_USED = 20
    KNOWN_BEFORE = 100


class Answer(NamedTuple):
    """code: see Code; seq: place in line in µs, 0 when none; position: 1 = next, 0 when it does not wait.

    terms_version, ordinal: as in the record, 0 when there is none.
    """

    code: int
    seq: int
    position: int
    terms_version: int = 0
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class SaleLine:
    """The line that a sale's requests go into. network_limit: units that one network is let in for; 0: any number.

    public_us: from when the sale is everybody's, in µs since 1970; 0: at no moment.
    """

    sale_id: int
    sku: str
    network_limit: int = 0
    public_us: int = 0


def state_of(code: int) -> State | None:
    """Return the state of an admitted request by its answer code, None when it was not admitted."""
    if code == Code.ADMITTED:
        return State.QUEUED
    if code == Code.ON_STANDBY:
        return State.STANDBY
    return STATE_OF_LETTER[chr(code - Code.KNOWN_BEFORE)] if code > Code.KNOWN_BEFORE else None


def word_of(code: int) -> str:
    """Return an answer's code in a word: "known" of who was admitted before, in whatever state."""
    if code > Code.KNOWN_BEFORE:
        return "known"
    return "standby" if code == Code.ON_STANDBY else Code(code).name.lower()


def _script_keys(line: SaleLine) -> list[str]:
    makers = (keys.sales, keys.stock, keys.line, keys.in_flight, keys.records, keys.live_units, keys.ended_requests)
    return [*(make(line.sku) for make in makers), keys.networks(line.sku), keys.passes(line.sku)]


def _script_args(line: SaleLine, asks: Sequence[Ask]) -> list[Argument]:
    # One text for the whole batch: packing four arguments a request costs more than everything else here.
    names, buyers, quantities, versions, standbys, networks, passes, entries, early = zip(*asks, strict=True)
    places = [place for place, standby in enumerate(standbys, 1) if standby] if any(standbys) else []
    shown = [each if any(each) else [] for each in (passes, entries, early)]
    payload = json.dumps([names, buyers, [*map(str, quantities)], [*map(str, versions)], places, networks, *shown])
    limits: list[Argument] = [MAX_ENDED_REQUESTS, REOPENING_US, MAX_STANDBY, line.network_limit]
    return [line.sale_id, line.sku, keys.wake_channel(), *limits, payload, line.public_us]


def _answers(flat: list[int]) -> list[Answer]:
    parts = iter(flat)
    # As Answer(*each), for less than half of what that costs.
    return [tuple.__new__(Answer, each) for each in zip(parts, parts, parts, parts, parts, strict=True)]


def _commands(line: SaleLine, asks: Sequence[Ask]) -> list[list[Argument]]:
    """Return the script call, and the wait for replicas after it on the same connection.

    WAIT covers what its own connection wrote. A batch that only repeats answers writes nothing: the PUBLISH, which goes
    to the replicas too, makes it wait for everything before it all the same.
    """
    script_keys = _script_keys(line)
    timeout_ms = round(settings.REDIS_TIMEOUT_SECONDS * 1000 / 2)
    return [
        ["EVAL", script_text("admit"), len(script_keys), *script_keys, *_script_args(line, asks)],
        ["PUBLISH", keys.replicas_channel(), line.sku],
        ["WAIT", settings.REDIS_REPLICAS, timeout_ms],
    ]


def _replicated(replies: list[Any]) -> list[Answer]:
    flat, _, replicas = replies
    if replicas < settings.REDIS_REPLICAS:
        raise RedisUnavailable("Your place is not safe on every server yet: ask again.")
    return _answers(flat)


async def admit_async(client: AsyncClient, line: SaleLine, asks: Sequence[Ask]) -> list[Answer]:
    """Admit `asks` (at most 1,000) in their order; return an answer for each. Raises RedisUnavailable (S12, I14).

    With FAIRDROP_REDIS_REPLICAS an answer means that so many replicas have the place; too few in time is an error,
    and the same asks again find their places.
    """
    if settings.REDIS_REPLICAS:
        return _replicated(await run_commands_async(client, _commands(line, asks)))
    return _answers(await run_script_async(client, "admit", keys=_script_keys(line), args=_script_args(line, asks)))


def admit(client: Client, line: SaleLine, asks: Sequence[Ask]) -> list[Answer]:
    """As admit_async, for callers without an event loop."""
    if settings.REDIS_REPLICAS:
        return _replicated(run_commands(client, _commands(line, asks)))
    return _answers(run_script(client, "admit", keys=_script_keys(line), args=_script_args(line, asks)))
