"""Makes every Redis key, a function each, type and lifetime alongside it. Never talks to Redis.

All keys of a SKU carry the hash tag {sku}: one slot on Redis Cluster, one script may touch them all.
"""

from __future__ import annotations

import re

from inventory.exceptions import InvalidRequest

FENCE_TTL_MS = 24 * 3600 * 1000
SKU_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
# What a lock or a queue may be called: every SKU, and names such as Queue:orders. A brace would break the hash tag.
NAME_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,198}[A-Za-z0-9])?")


def checked_sku(sku: str) -> str:
    """Return `sku`, or raise InvalidRequest: a brace or a newline in it would break the hash tag (pitfall L22)."""
    if not SKU_PATTERN.fullmatch(sku):
        raise InvalidRequest(f"sku must match {SKU_PATTERN.pattern}, got {sku!r}")
    return sku


def line(sku: str) -> str:
    """zset, request_id → seq: who waits; on standby seq + 2^52, after all others. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:line"


def in_flight(sku: str) -> str:
    """zset, request_id → seq: taken by the lock holder, not yet settled. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:flight"


def records(sku: str) -> str:
    """hash, request_id → record (see records.py): every request ever admitted. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:records"


def live_units(sku: str) -> str:
    """hash, "sale_id:buyer" → units in line, in flight, held or paid. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:live"


def stock(sku: str) -> str:
    """hash: available, held, sold, version, queued, last_seq, changes, the last hand-out. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:stock"


def sales(sku: str) -> str:
    """hash: "sale_id" → "state|opens_us|closes_us|limit|capacity|revision|terms version|changed_us", "sale_id:ordinals"
    → "last|base|run id of the server", "sale_id:terms:version" → "limit|price|currency", "sale_id:terms:version:hold"
    → seconds. Lives as long as the SKU.
    """
    return f"fd:{{{sku}}}:sales"


def ended_requests(sku: str) -> str:
    """hash, "sale_id:buyer" → how many requests ended unsold, or were refunded. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:givenup"


def networks(sku: str) -> str:
    """hash, "sale_id:network" → units that a network was let in for. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:networks"


def passes(sku: str) -> str:
    """hash, "sale_id:pass id" → the request that a pass let in, "sale_id:@hash" → the one that an e-mail let in. Lives
    as long as the SKU.
    """
    return f"fd:{{{sku}}}:passes"


def hand_outs(sku: str) -> str:
    """hash, request_id → how often it was handed out again after a crash. Emptied by settle."""
    return f"fd:{{{sku}}}:handouts"


def dead_letters(sku: str) -> str:
    """zset, request_id → seq: handed out too often; an operator must look. Lives until they do."""
    return f"fd:{{{sku}}}:dead"


def aside(sku: str) -> str:
    """zset, request_id → seq: dead letters whose refusal could not be written. Lives until an operator looks."""
    return f"fd:{{{sku}}}:aside"


def dead_letter_notes(sku: str) -> str:
    """hash, request_id → "hand-outs|since, in µs" of each dead letter. Lives as long as the letter."""
    return f"fd:{{{sku}}}:deadnotes"


def all_of(sku: str) -> list[str]:
    """Return every key of a SKU, the lock's first: what is forgotten with it."""
    own = (line, in_flight, aside, sales, stock, records, live_units, ended_requests, networks, passes)
    dead = (hand_outs, dead_letters, dead_letter_notes)
    return [make(sku) for make in (lock, *own, *dead, fence, lock_waiters, lock_signals, lock_statistics)]


def queue_waiting(name: str) -> str:
    """zset, task id → when it is due in µs: who waits. Lives while a task waits."""
    return f"fd:{{{name}}}:queue:waiting"


def queue_in_flight(name: str) -> str:
    """zset, task id → when it was due in µs: taken by the lock's holder, not settled. Lives until settled."""
    return f"fd:{{{name}}}:queue:flight"


def queue_records(name: str) -> str:
    """hash, task id → its payload: every task that waits, is in flight or is dead. Lives as long as the task."""
    return f"fd:{{{name}}}:queue:records"


def queue_state(name: str) -> str:
    """hash: counters over all machines, the queue's clock, the last hand-out. Lives for ever."""
    return f"fd:{{{name}}}:queue:state"


def queue_hand_outs(name: str) -> str:
    """hash, task id → how often it was handed out again after a crash. Emptied by settle."""
    return f"fd:{{{name}}}:queue:handouts"


def queue_dead_letters(name: str) -> str:
    """zset, task id → when it was due in µs: handed out too often. Lives until an operator has looked."""
    return f"fd:{{{name}}}:queue:dead"


def queue_dead_letter_notes(name: str) -> str:
    """hash, task id → "hand-outs|since, in µs" of each dead letter. Lives as long as the letter."""
    return f"fd:{{{name}}}:queue:deadnotes"


def queue_reply(name: str, *, method: str, call: str) -> str:
    """string, what one enqueue or pop was given, so that a re-sent one is given the same. Lives a minute at most."""
    return f"fd:{{{name}}}:queue:{method}:{call}"


def lock(name: str) -> str:
    """string, the holder's token, or g:nonce while handed on. Lives for the lock's TTL, renewed by its holder."""
    return f"fd:{{{name}}}:lock"


def fence(name: str) -> str:
    """string, the last fence given out. Lives 24 h after the last acquire (pitfall L20)."""
    return f"fd:{{{name}}}:fence"


def lock_waiters(name: str) -> str:
    """zset, token → server ms until which it waits: who waits for a lock. Lives 4 s after the last waiter came."""
    return f"fd:{{{name}}}:lock:waiters"


def lock_signals(name: str) -> str:
    """list, at most one nonce: wakes the waiter blocked longest. Lives 1 s, the grant's life (pitfall L10)."""
    return f"fd:{{{name}}}:lock:signals"


def lock_statistics(name: str) -> str:
    """hash, counter → number: how a lock was used. Lives 7 days after its last use."""
    return f"fd:{{{name}}}:lock:statistics"


def lock_names() -> str:
    """set of names that were ever locked and counted. Lives for ever: names are few."""
    return "fd:locks"


def skus() -> str:
    """set of SKUs that have been primed. A SKU leaves it with its last sale; rebuilt by priming."""
    return "fd:skus"


def queues() -> str:
    """set of queues that ever had a task. Lives for ever; written again by each process that enqueues."""
    return "fd:queues"


def workers() -> str:
    """hash, "host:pid" → a worker's last sign of life as JSON. Lives an hour after the last one of anybody."""
    return "fd:workers"


def reconciliations() -> str:
    """hash, SKU → the last comparison that staff asked for, as JSON. Lives a day after the last one."""
    return "fd:reconciliations"


def checkpoints() -> str:
    """hash, sale id → the last checkpoint of its public log, as a signed note. Lives for ever: the log does, too."""
    return "fd:checkpoints"


def wake_channel() -> str:
    """channel: a SKU whose line was empty and is not any more. A hint only; the sweep is the guarantee."""
    return "fd:wake"


def settled_channel() -> str:
    """channel: a SKU of which a batch was settled or whose stock changed. A hint only."""
    return "fd:settled"


def replicas_channel() -> str:
    """channel: nobody listens; its messages reach the replicas, so that WAIT counts them (see admission.py)."""
    return "fd:replicas"
