"""Checks the invariants of queues and of SKU lines: every id in one place, records and counters that agree.
Never repairs anything and may run while all work goes on.

Every id is judged in one moment by a script; sizes and counters in one moment too. So nothing that only moves is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from inventory.audit import line
from inventory.line.repair import place_keys
from inventory.queues.queue import MAX_DELAY_MS, Counters, queue_keys
from inventory.records import Record, record_or_none
from inventory.redis import Client, keys, run_commands, run_script
from inventory.redis.scan import Seen, pages, see
from inventory.states import WAITING_STATES

PAGE = 500


class QueueFinding(NamedTuple):
    """One broken invariant: where ('queue' or 'line', and its name), which rule, and what was seen."""

    kind: str
    name: str
    rule: str
    detail: str


def known_queues(client: Client) -> list[str]:
    """Return every queue that ever had a task, by name. Raises RedisUnavailable."""
    (known,) = run_commands(client, [("SMEMBERS", keys.queues())])
    return sorted(known)


def check_queue(client: Client, name: str) -> list[QueueFinding]:
    """Return what is wrong with queue `name`; an empty list when nothing is (Q4). Raises RedisUnavailable."""
    script_keys = queue_keys(name)
    found = _counter_findings(name, run_script(client, "queue_check", keys=script_keys, args=[]))
    for page in _pages(client, script_keys):
        found += [finding for seen in see(client, script_keys, page) for finding in _task_findings(name, seen)]
    return found


def _counter_findings(name: str, reply: Sequence[Any]) -> list[QueueFinding]:
    waiting, in_flight, dead, records, flat = reply[:5]
    state = dict(zip(flat[::2], flat[1::2], strict=True))
    count = Counters(*(int(state.get(field, 0)) for field in Counters._fields))
    left = count.enqueued - count.settled - count.popped - count.dequeued - count.discarded
    sums = {
        "every task has its record": (waiting + in_flight + dead, records),
        "the counters agree": (left, waiting + in_flight + dead),
        "dead letters are counted": (count.dead - count.retried - count.discarded, dead),
    }
    return [
        QueueFinding("queue", name, rule, f"{one} against {other}")
        for rule, (one, other) in sums.items()
        if one != other
    ]


def _task_findings(name: str, seen: Seen) -> Iterator[QueueFinding]:
    if not seen.places and seen.record is None:
        return  # settled since its page was read
    if len(seen.places) != 1:
        yield QueueFinding(
            "queue", name, "an id is in exactly one place", f"{seen.request_id} is in {seen.places or 'none'!r}"
        )
    if seen.record is None:
        yield QueueFinding("queue", name, "every task has its record", f"{seen.request_id} has none")
    if seen.places and not 0 < seen.score < 2**53 - MAX_DELAY_MS:
        yield QueueFinding("queue", name, "due times are sane", f"{seen.request_id} is due at {seen.score:.0f} µs")


def check_line(client: Client, sku: str) -> list[QueueFinding]:
    """Return what is wrong with the line of `sku`; an empty list when nothing is (Q4). Raises RedisUnavailable."""
    script_keys = place_keys(sku)
    before = line.look(client, sku)
    found: list[QueueFinding] = []
    units: dict[str, int] = {}  # by id: one that is met in its place and in its record counts once
    for page in _pages(client, script_keys):
        for seen in see(client, script_keys, page):
            record = record_or_none(seen.record)
            found += _request_findings(sku, seen, record)
            if record and set(seen.places) & {"w", "f"}:
                units[seen.request_id] = record.quantity
    after = line.look(client, sku)
    # Units can only be added up while nobody comes or goes.
    there_units = sum(units.values())
    still = before._replace(now_us=0) == after._replace(now_us=0)
    if still and there_units != after.queued and not found:
        found.append(
            QueueFinding("line", sku, "the line counts its units", f"{after.queued} counted, {there_units} there")
        )
    return found


def _request_findings(sku: str, seen: Seen, record: Record | None) -> Iterator[QueueFinding]:
    if not seen.places and seen.record is None:
        return
    if record is None or record.quantity < 1:
        yield QueueFinding("line", sku, "records can be read", f"{seen.request_id}: {seen.record!r:.200}")
        return
    waits = record.state in WAITING_STATES
    if {"w", "f"} <= set(seen.places) or {"w", "d"} <= set(seen.places):
        yield QueueFinding("line", sku, "an id is in exactly one place", f"{seen.request_id} is in {seen.places!r}")
    if waits != bool(set(seen.places) & {"w", "f"}) and not (waits and seen.places == "d"):
        yield QueueFinding(
            "line", sku, "exactly the waiting tasks are in line", f"{seen.request_id}: {record.state}, {seen.places!r}"
        )
    if seen.places and waits and "d" not in seen.places and seen.score != record.score:
        yield QueueFinding(
            "line", sku, "the score is the seq", f"{seen.request_id}: {seen.score:.0f} against {record.score}"
        )


def _pages(client: Client, script_keys: Sequence[str]) -> Iterator[list[str]]:
    """Yield every id of the places and the records, some hundred at a time; one that moves meanwhile may come twice."""
    for scan, key in zip(("ZSCAN", "ZSCAN", "ZSCAN", "HSCAN"), script_keys, strict=False):
        for page in pages(client, scan, key, size=PAGE):
            yield [name for name, _ in page]
