"""Looks at a SKU's line and compares it with the counts of the database: nobody lost, nobody waits for nothing.
Never repairs anything, never blocks Redis for long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

from inventory.audit.finding import Finding
from inventory.line.snapshot import LineLook, look_keys
from inventory.records import record_or_none
from inventory.redis import Client, run_script
from inventory.states import State

WAITS = ("I21", _("nobody waits for what is free, or for what cannot come"))
MAX_ADDED_UP = 1_000
# The first in line of each SKU and since when this process has seen it there: a place that a ticket brought back is
# old from its first moment.
_FIRST_SEEN: dict[str, tuple[str, float]] = {}


def look(client: Client, sku: str, *, sale_id: int | None = None) -> LineLook:
    """Return the state of a SKU's line, read in one moment; sale_id: whose admissions are counted, by default all.

    Raises RedisUnavailable.
    """
    args = [MAX_ADDED_UP, "" if sale_id is None else sale_id]
    return LineLook(*run_script(client, "audit_line", keys=look_keys(sku), args=args))


def line_findings(
    before: LineLook, books: Mapping[str, int | None], after: LineLook, *, first_waits: Finding
) -> list[Finding]:
    """Compare the line, looked at before and after the snapshot, with `books`, the counts of the snapshot."""
    decided = books["decided_in_order"] or 0
    # Where a jump of the ordinals is under way the two stores speak of different requests.
    incomparable, moved = (look.bases != (books["ordinal_base"] or 0) for look in (before, after))
    must_be_decided = before.admitted - before.discarded - before.waiting - before.in_flight
    lost = f"{decided} of {must_be_decided} decided"
    if before.dead:
        lost += f"; dead letters, {before.aside} of them undecided: {before.dead}"
    known = f"{decided} of {after.admitted} asked" if after.primed else "Redis has lost this line; it is not primed yet"
    asked_for = not after.primed or after.replaced > 0 or incomparable or moved or decided <= after.admitted
    if after.replaced:
        known += "; Redis was started again or replaced since, so the next ask primes the sale"
    if after.bases:
        known += f"; ordinals went on after {after.bases}, because Redis had lost the line"
    return [
        Finding("I4", _("nothing admitted is lost"), incomparable or decided >= must_be_decided, lost),
        Finding("I5b", _("nothing comes from nowhere"), asked_for, known),
        _units_counted(after),
        Finding("I17", _("nobody is in line and in flight at once"), after.both == 0, f"{after.both} are in both"),
        first_waits,
    ]


def _units_counted(line: LineLook) -> Finding:
    at_rest = line.waiting == line.in_flight == 0
    detail = f"{line.queued} units queued"
    ok = line.queued >= 0
    if at_rest:
        detail, ok = f"{line.queued} units queued at rest", line.queued == 0
    elif line.units >= 0:
        detail, ok = f"{line.queued} units queued, {line.units} by the records", line.queued == line.units
    return Finding("I15", _("the line counts its units"), ok, detail)


def first_waits(sku: str, line: LineLook, books: Mapping[str, int | None], *, patience_ms: int) -> Finding:
    """Say whether the first in line waits though it could be decided, for longer than `patience_ms` (I21).

    It could when its units are free, when they can never be, unless it is on standby, and when its sale is over.
    """
    record = record_or_none(line.first_record)
    if record is None:
        _FIRST_SEEN.pop(sku, None)
        detail = f"the record of {line.first} is damaged" if line.first else "nobody waits"
        return Finding(*WAITS, True, detail)
    available, held = books["available"] or 0, books["held"] or 0
    if record.quantity <= available:
        why, since_ms = f"{available} units are free", _least(books["decided_ms_ago"], books["freed_ms_ago"])
    elif line.over_ms >= 0:
        why, since_ms = "its sale is over", line.over_ms
    elif record.state is State.STANDBY:
        return Finding(*WAITS, True, f"{line.first} is on standby for {record.quantity}")
    elif record.quantity > available + held:
        why, since_ms = "nothing can come back", _least(books["changed_ms_ago"])
    else:
        return Finding(*WAITS, True, f"{line.first} waits for one of {held} held units")
    since_ms = _least(since_ms, (line.now_us - max(record.seq, line.decides_from_us)) // 1000)
    state, *_, changed_us = line.sale.split("|") if line.sale else ("unknown", str(line.now_us))
    since_ms = _least(since_ms, (line.now_us - int(changed_us)) // 1000)
    if state == "paused" and line.over_ms >= 0:  # a pause holds nobody up any more
        state, since_ms = "closed", _least(since_ms, line.over_ms)
    if record.restored:
        since_ms = _least(since_ms, _seen_ms(sku, line.first))
    detail = f"{line.first} waits for {record.quantity}, {why}, for {since_ms / 1000:.1f} s"
    may_wait = since_ms <= patience_ms or line.waits_for in ("paused", "tickets")
    return Finding(*WAITS, may_wait, f"{detail}; the sale is {state}")


def _least(*ages_ms: int | None) -> int:
    """Return the youngest of some ages; None is one that never began."""
    return min((age for age in ages_ms if age is not None), default=2**53)


def _seen_ms(sku: str, first: str) -> int:
    was, since = _FIRST_SEEN.get(sku, ("", 0.0))
    if was != first:
        since = time.monotonic()
        _FIRST_SEEN[sku] = (first, since)
    return int((time.monotonic() - since) * 1000)
