"""Sends the sandbox's notices: a signed POST with a timeout, again with growing pauses until somebody answers 2xx.
Never keeps a process alive, never holds a row while it waits for the network, never queues without a bound.
"""

from __future__ import annotations

import http.client
import queue
import threading
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection, transaction
from django.db.models.functions import Now

from shop.sandbox import accounts, signing
from shop.sandbox.models import Event

log = structlog.get_logger(__name__)

POST_SECONDS = 3.0
BATCH = 10
# Longer than a batch takes in the worst case; then another sender may try what this one has not ended.
LEASE_SECONDS = 2 * BATCH * POST_SECONDS
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60.0
MAX_WAITING = 200
# A receiver that is told of 200 things at once is told one after another; the worker takes what does not fit here.
SENDERS = 2

# One claim: who got the row tries it, everybody else finds it due only after the lease.
CLAIM = """
UPDATE sandbox_event SET attempts = attempts + 1, due_at = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE id IN (SELECT id FROM sandbox_event
             WHERE delivered_at IS NULL AND due_at <= clock_timestamp() AND happened_at > now() - interval '3 days'
               AND (%(event_id)s = '' OR event_id = %(event_id)s)
             ORDER BY {order} LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id
"""
PUT_OFF = """
UPDATE sandbox_event SET due_at = clock_timestamp() + make_interval(secs => %(pause)s), last_error = %(error)s
WHERE id = %(id)s AND delivered_at IS NULL
"""

_waiting: queue.Queue[str] = queue.Queue(maxsize=MAX_WAITING)
_senders: list[threading.Thread] = []
_starting = threading.Lock()


def send_due(*, limit: int = BATCH, event_id: str = "") -> int:
    """Try each notice that is due, at most `limit`; return how many were tried. event_id: only this one."""
    order = "id DESC" if "shuffled" in settings.SANDBOX_MISCHIEF else "due_at"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(CLAIM.format(order=order), {"lease": LEASE_SECONDS, "limit": limit, "event_id": event_id})
        ids = [row[0] for row in cursor.fetchall()]
    events = Event.objects.select_related("charge").in_bulk(ids)
    for number in ids:
        _send(events[number])
    return len(ids)


def _send(event: Event) -> None:
    error = post(event)
    if "twice" in settings.SANDBOX_MISCHIEF:
        error = post(event) or error
    if not error:
        Event.objects.filter(pk=event.pk).update(delivered_at=Now(), last_error="")
        return
    pause = min(FIRST_PAUSE_SECONDS * 2 ** min(event.attempts - 1, 10), MAX_PAUSE_SECONDS)
    payment = event.charge.reference
    log.info("notice not taken", action="notice_retry", notice=event.event_id, payment=payment, error=error)
    with connection.cursor() as cursor:
        cursor.execute(PUT_OFF, {"pause": pause, "error": error[:200], "id": event.pk})


def post(event: Event) -> str:
    """POST the notice of `event` once; return what went wrong, '' when it was taken."""
    body = signing.write_notice(accounts.notice_of(event))
    headers = {
        "Content-Type": "application/json",
        signing.HEADER: signing.sign(body, secret=settings.SANDBOX_SECRET),
    }
    address = urlsplit(event.charge.notice_url)
    make = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    caller = make(address.netloc, timeout=POST_SECONDS)
    try:
        caller.request("POST", address.path, body=body, headers=headers)
        answer = caller.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        caller.close()
    return "" if 200 <= answer.status < 300 else f"answered {answer.status}"


def send_soon(event: Event) -> None:
    """Let a thread of this process send `event` now, if one is free; else the worker sends it. Never waits."""
    if event.due_at is None or {"mute", "late", "shuffled"} & set(settings.SANDBOX_MISCHIEF):
        return
    _start_senders()
    try:
        _waiting.put_nowait(event.event_id)
    except queue.Full:
        log.warning("too many notices at once; the worker sends the rest", action="notice_left_to_worker")


def _start_senders() -> None:
    with _starting:
        # Threads do not outlive a fork: start those that are missing.
        _senders[:] = [thread for thread in _senders if thread.is_alive()]
        while len(_senders) < SENDERS:
            thread = threading.Thread(target=_send_for_ever, name="sandbox-sender", daemon=True)
            thread.start()
            _senders.append(thread)


def _send_for_ever() -> None:
    while True:
        event_id = _waiting.get()
        try:
            send_due(limit=1, event_id=event_id)
        except (DatabaseError, InterfaceError) as error:
            log.warning("notice left to the worker", action="notice_left_to_worker", error=str(error))
        finally:
            if _waiting.empty():
                connection.close()
            close_old_connections()
