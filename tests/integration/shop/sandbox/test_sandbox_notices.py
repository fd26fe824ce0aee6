"""The sandbox tells its shop what happened by signed POSTs, until somebody takes them. A real listener hears them."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import override_settings

from shop.sales.catalogue import SaleCard
from shop.sandbox import accounts, deliveries, signing
from shop.sandbox.models import Charge, Event
from tests.support.paying import NOWHERE, begin, hold
from tests.support.servers.shop_processes import ROOT
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


class Listener:
    """A real HTTP listener that answers as it is told and keeps what it got."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.got.append((dict(self.headers), body))
                listener.meanwhile()
                self.send_response(listener.answers.pop(0) if listener.answers else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/notices"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setattr(deliveries, "POST_SECONDS", PATIENCE_SECONDS)  # a busy machine is not a receiver that is away
    listening = Listener()
    yield listening
    listening.stop()


def event_for(card: SaleCard, url: str) -> Event:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    Charge.objects.filter(reference=payment.reference).update(notice_url=url)
    event, _ = accounts.record(payment.reference, "captured", told_after_seconds=0)
    return event


def make_due(event: Event) -> None:
    Event.objects.filter(pk=event.pk).update(due_at=Now())


def test_a_notice_is_sent_again_until_it_is_taken(
    card: SaleCard, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "FIRST_PAUSE_SECONDS", 300.0)
    listener.answers = [503, 400]
    event = event_for(card, listener.url)
    for attempt in (1, 2, 3):
        assert deliveries.send_due(event_id=event.event_id) == 1
        event.refresh_from_db()
        assert (event.attempts, event.delivered_at is not None) == (attempt, attempt == 3)
        # Not before its pause is over.
        assert deliveries.send_due(event_id=event.event_id) == 0
        make_due(event)
    assert deliveries.send_due(event_id=event.event_id) == 0
    assert len(listener.got) == 3
    for headers, body in listener.got:
        notice = signing.read_notice(headers, body, secret=settings.SANDBOX_SECRET)
        assert notice == accounts.notice_of(event)


def test_a_receiver_that_is_away_is_tried_later(card: SaleCard) -> None:
    event = event_for(card, NOWHERE)
    assert deliveries.send_due(event_id=event.event_id) == 1
    event.refresh_from_db()
    assert event.delivered_at is None
    assert "refused" in event.last_error


def test_two_senders_do_not_send_the_same_notice(card: SaleCard, listener: Listener) -> None:
    """The lease: while one waits for an answer, another one finds nothing due, though no row is locked."""
    event = event_for(card, listener.url)
    found: list[int] = []

    def another_sender() -> None:
        try:
            found.append(deliveries.send_due(event_id=event.event_id))
        finally:
            connection.close()

    listener.meanwhile = another_sender
    assert deliveries.send_due(event_id=event.event_id) == 1
    assert (found, len(listener.got)) == ([0], 1)


def test_mischief_sends_twice(card: SaleCard, listener: Listener) -> None:
    event = event_for(card, listener.url)
    with override_settings(SANDBOX_MISCHIEF=["mute", "twice"]):
        deliveries.send_due(event_id=event.event_id)
    assert len(listener.got) == 2
    assert listener.got[0][1] == listener.got[1][1]


def test_mischief_sends_late(card: SaleCard, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "LATE_SECONDS", 60.0)
    with override_settings(SANDBOX_MISCHIEF=["mute", "late"]):
        event = event_for(card, listener.url)
    assert deliveries.send_due(event_id=event.event_id) == 0
    make_due(event)
    assert deliveries.send_due(event_id=event.event_id) == 1


def test_a_full_queue_makes_nobody_wait(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    event = event_for(card, NOWHERE)
    waiting: queue.Queue[str] = queue.Queue(maxsize=1)
    monkeypatch.setattr(deliveries, "_waiting", waiting)
    monkeypatch.setattr(deliveries, "_start_senders", lambda: None)
    with override_settings(SANDBOX_MISCHIEF=[]):
        deliveries.send_soon(event)
        deliveries.send_soon(event)
    assert waiting.qsize() == 1
    assert deliveries.send_due(event_id=event.event_id) == 1, "the worker finds what did not fit"


HURRY = """
import django
django.setup()
from shop.sandbox import deliveries
from shop.sandbox.models import Event
deliveries.POST_SECONDS = 3600
deliveries.send_soon(Event.objects.get(event_id="{event_id}"))
{wait}
"""


def test_a_receiver_that_is_silent_keeps_no_process_alive(
    card: SaleCard, listener: Listener, process_environment: dict[str, str]
) -> None:
    """The control: the receiver has the notice, and it is the sender's thread that waits for its answer."""
    event = event_for(card, listener.url)
    released = threading.Event()
    listener.meanwhile = lambda: void(released.wait(timeout=120))
    wait = "import time\nwhile not input(): time.sleep(0.01)"
    sender = subprocess.Popen(
        [sys.executable, "-c", HURRY.format(event_id=event.event_id, wait=wait)],
        cwd=ROOT,
        env={**process_environment, "DJANGO_SETTINGS_MODULE": "shop.settings"},
        stdin=subprocess.PIPE,
    )
    try:
        wait_until(lambda: listener.got, what="the notice was sent")
        assert sender.poll() is None
        sender.communicate(b"end\n", timeout=PATIENCE_SECONDS)
        assert sender.returncode == 0
    finally:
        released.set()
        sender.kill()
        sender.wait()


def void(_value: object) -> None:
    """Take a value and do nothing with it."""
