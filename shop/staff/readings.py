"""Reads everything that a control room shows of one sale: counts, line, speed, invariants, workers, lock, acts.
Never changes anything; what one store does not answer is said, and the rest is shown.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

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
from shop.staff.lists import revenue
from shop.staff.room import history, speed

LAST = 12
MAX_LETTERS = 50
CHART_SECONDS = 600.0
LINE_FIELDS = ("waiting", "waitlisted", "in_flight", "decided", "aside")


def read_room(sale: Sale, last: dict[str, Any] | None) -> dict[str, Any]:
    """Return everything a room shows of `sale`, as plain data; last: the reading before, for the speed."""
    stock = sale.stock
    stock.refresh_from_db()
    of_redis = _of_redis(stock.sku)
    latency = speed.read_speed(sale_id=sale.pk, stock_id=stock.pk, waitlisted_to=of_redis.pop("waitlisted_to"))
    room: dict[str, Any] = {
        "at": time.time(),
        "opens": sale.opens_at.timestamp(),
        "closes": sale.closes_at.timestamp(),
        "earned": _earned(sale),
        "state": sale.state_at(timezone.now()),
        "pause_reason": sale.pause_reason,
        "retired": sale.retired_at is not None,
        "stock": {name: getattr(stock, name) for name in ("total", "available", "held", "sold", "fence")},
        "movements": [_movement(each) for each in StockMovement.objects.filter(stock=stock)[:LAST]],
        "acts": [_act(each) for each in StaffAct.objects.filter(sale=sale)[:LAST]],
        "latency": latency._asdict(),
        "invariants": _invariants(sale),
        "points": history.read_points(sale.pk, seconds=CHART_SECONDS),
        **of_redis,
    }
    room["rate"] = _rate(room, last)
    return room


def _of_redis(sku: str) -> dict[str, Any]:
    try:
        client = redis.connect()
        look = snapshot.look_at(client, [sku])[sku]
        return {
            "redis_error": "",
            "waitlisted_to": speed.read_waitlisted_to(client, sku),
            "full": memory.look(client, sku),
            "line": {
                **{name: getattr(look.line, name) for name in LINE_FIELDS},
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
        return {"redis_error": error.detail, "waitlisted_to": 0, **nothing}


def _lock(look: snapshot.StockLook, numbers: dict[str, int]) -> dict[str, Any]:
    lock = look.lock
    waits, holds = numbers.get("waits", 0), numbers.get("holds", 0)
    return {
        "state": lock.state,
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


def _earned(sale: Sale) -> dict[str, Any]:
    """Return what the sale has earned, as text by currency, and how many orders are paid."""
    found = revenue.of_sales([sale.pk]).get(sale.pk, [])
    sums = [(each.currency, str(each.amount)) for each in found] or [(sale.currency, "0")]
    return {"sums": sums, "orders": sum(each.orders for each in found)}


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
