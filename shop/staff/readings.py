"""Reads everything that a control room shows of one sale: counts, line, speed, invariants, workers, lock, acts.
Never changes anything; what one store does not answer is said, and the rest is shown.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from django.db import connection
from django.utils import timezone

from inventory import heartbeats, reconcile_requests, redis
from inventory.exceptions import FairdropError, RedisUnavailable
from inventory.line import dead_letters, snapshot
from inventory.locks.statistics import read_statistics
from inventory.locks.token import in_words
from inventory.models import StockMovement
from inventory.redis import memory
from inventory.states import WAITING_STATES
from shop.models import Sale, StaffAct
from shop.sales.audit import audit_sale
from shop.sales.decision_rates import Sample, measure

LAST = 12
MAX_LETTERS = 50
# Ten minutes at one point every two seconds.
MAX_POINTS = 300
SPEED_SECONDS = 10
LINE_FIELDS = ("waiting", "waitlisted", "in_flight", "queued", "admitted", "decided", "aside", "waits_for")
# A point of the charts: Unix s, units free, held, sold, requests waiting, decisions a second, ms p50, ms p99.
Point = list[float | None]

# Bounded by the newest orders of the whole shop: no index leads to "decided lately", and none shall be paid for.
SPEED = """
SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)
FROM (SELECT extract(epoch FROM decided_at) * 1000 - seq / 1000.0 AS ms FROM shop_order
      WHERE id > (SELECT coalesce(max(id), 0) FROM shop_order) - 5000 AND sale_id = %(sale_id)s AND NOT restored
        AND NOT standby AND decided_at > clock_timestamp() - make_interval(secs => %(seconds)s)) AS lately
"""


def read_room(sale: Sale, last: dict[str, Any] | None) -> dict[str, Any]:
    """Return everything a room shows of `sale`, as plain data; last: the reading before, for speeds and charts."""
    stock = sale.stock
    stock.refresh_from_db()
    room: dict[str, Any] = {
        "at": time.time(),
        "state": sale.state_at(timezone.now()),
        "pause_reason": sale.pause_reason,
        "retired": sale.retired_at is not None,
        "stock": {name: getattr(stock, name) for name in ("total", "available", "held", "sold", "version", "fence")},
        "movements": [_movement(each) for each in StockMovement.objects.filter(stock=stock)[:LAST]],
        "acts": [_act(each) for each in StaffAct.objects.filter(sale=sale)[:LAST]],
        "latency": _latency(sale),
        "invariants": _invariants(sale),
        **_of_redis(stock.sku),
    }
    room["rate"] = _rate(room, last)
    room["points"] = [*(last["points"] if last else _past(sale)), _point(room)][-MAX_POINTS:]
    return room


def _of_redis(sku: str) -> dict[str, Any]:
    try:
        client = redis.connect()
        look = snapshot.look_at(client, [sku])[sku]
        return {
            "redis_error": "",
            "full": memory.look(client, sku),
            "line": {
                **{name: getattr(look.line, name) for name in LINE_FIELDS},
                "primed": bool(look.line.primed),
                "dead": look.line.dead_letters,
                "oldest_seconds": look.oldest_seconds,
            },
            "lock": _lock(look, read_statistics(client, sku)),
            "workers": [_worker(each) for each in heartbeats.workers(client)],
            "letters": [_letter(each) for each in dead_letters.dead_letters(client, sku)[:MAX_LETTERS]],
            "comparison": reconcile_requests.last(client, sku),
        }
    except RedisUnavailable as error:
        nothing: dict[str, Any] = {"line": None, "lock": None, "workers": [], "letters": [], "comparison": None}
        return {"redis_error": error.detail, **nothing}


def _lock(look: snapshot.StockLook, numbers: dict[str, int]) -> dict[str, Any]:
    lock = look.lock
    waits, holds = numbers.get("waits", 0), numbers.get("holds", 0)
    return {
        "state": lock.state,
        "token": lock.token or "",
        "holder": lock.holder,
        "held_seconds": look.lock_seconds,
        "left_ms": lock.left_ms,
        "fence": lock.fence,
        "waiters": [in_words(token) for token in lock.waiters],
        "attempts": numbers.get("attempts", 0),
        "contended": numbers.get("contended", 0),
        "losses": numbers.get("losses", 0),
        "mean_wait_ms": numbers.get("waits_us", 0) / waits / 1000 if waits else None,
        "longest_wait_ms": numbers.get("waits_max_us", 0) / 1000,
        "mean_hold_ms": numbers.get("holds_us", 0) / holds / 1000 if holds else None,
    }


def _worker(worker: heartbeats.Worker) -> dict[str, Any]:
    return asdict(worker) | {"doing": worker.doing if worker.alive else "silent", "alive": worker.alive}


def _letter(letter: dead_letters.DeadLetter) -> dict[str, Any]:
    return {
        "request_id": letter.request_id,
        "hand_outs": letter.hand_outs,
        "since": letter.since.isoformat(timespec="seconds") if letter.since else "",
        "in_flight": letter.in_flight,
        "decided": letter.record[:1] not in {"", *(state.letter for state in WAITING_STATES)},
    }


def _movement(movement: StockMovement) -> dict[str, Any]:
    return {
        "at": movement.created_at.isoformat(timespec="milliseconds"),
        "kind": movement.kind,
        "delta": movement.delta,
        "request_id": movement.request_id or "",
        "actor": movement.actor,
        "reason": movement.reason,
    }


def _act(act: StaffAct) -> dict[str, Any]:
    return {
        "at": act.at.isoformat(sep=" ", timespec="seconds"),
        "act": act.act,
        "actor": act.actor,
        "reason": act.reason,
        "detail": act.detail,
    }


def _latency(sale: Sale) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(SPEED, {"sale_id": sale.pk, "seconds": SPEED_SECONDS})
        count, p50, p99 = cursor.fetchone()
    return {
        "count": count,
        "p50_ms": None if p50 is None else max(0.0, p50),
        "p99_ms": None if p99 is None else max(0.0, p99),
    }


def _invariants(sale: Sale) -> dict[str, Any]:
    try:
        report = audit_sale(sale.slug)
    except FairdropError as error:
        return {"ok": False, "error": error.detail, "findings": [], "note": ""}
    return {"ok": report["ok"], "error": "", "findings": report["invariants"], "note": report.get("note", "")}


def _rate(room: dict[str, Any], last: dict[str, Any] | None) -> float | None:
    """Return decisions a second since the reading before; None when there was none lately."""
    if last is None or not last["line"] or not room["line"]:
        return None
    before = Sample(last["at"], last["line"]["decided"], last["rate"])
    rate = measure(before, decided=room["line"]["decided"], at=room["at"], min_seconds=0.0).rate
    return None if rate is None else round(rate, 1)


def _point(room: dict[str, Any]) -> Point:
    stock, latency, line = room["stock"], room["latency"], room["line"]
    waiting = line["waiting"] + line["in_flight"] if line else None
    figures = [round(room["at"], 3), stock["available"], stock["held"], stock["sold"], waiting, room["rate"]]
    times = [None if latency[name] is None else round(latency[name], 1) for name in ("p50_ms", "p99_ms")]
    return [*figures, *times]


# What the ledger knows of the minutes before anybody looked: free units only.
PAST = """
SELECT extract(epoch FROM step), s.available - coalesce(sum(sum(m.delta)) OVER (
           ORDER BY step DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
FROM inventory_stock s JOIN inventory_stockmovement m ON m.stock_id = s.id
CROSS JOIN LATERAL (SELECT date_bin('2 seconds', m.created_at, '2000-01-01')) AS steps(step)
WHERE s.id = %(stock_id)s AND m.created_at > clock_timestamp() - interval '10 minutes'
GROUP BY s.available, step ORDER BY step
"""


def _past(sale: Sale) -> list[Point]:
    with connection.cursor() as cursor:
        cursor.execute(PAST, {"stock_id": sale.stock_id})
        return [[float(at), int(free), None, None, None, None, None, None] for at, free in cursor.fetchall()]
