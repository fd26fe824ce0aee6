"""A kind of worker of which none is left is shown as such: those that every shop has, and those that this one has."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, call

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test.utils import override_settings
from post_office.models import Email

from inventory import redis
from inventory.heartbeats import Heartbeat, Worker
from shop.orders import mails
from tests.support.waiting import wait_until
from workers import mailer
from workers.embedded.server import free_port
from workers.management.commands import run_worker
from workers.management.commands.run_worker import run_mailer, run_notary, run_settler
from workers.process_loop import StopFlag
from workers.reconciler import gauges
from workers.reconciler.gauges import Gauges
from workers.settler import Settler

ALWAYS = {"settler", "expirer", "payments", "reconciler"}


@pytest.fixture
def without_either() -> Iterator[None]:
    with override_settings(MAIL_ON=False, SALE_LOG=False):
        yield


def alive(shown: Gauges) -> dict[str, float]:
    """Return how many are shown alive, by kind."""
    found = re.findall(r'^fairdrop_workers_alive\{worker="(\w+)"\} (\S+)$', "".join(shown.collect()), re.MULTILINE)
    return {kind: float(count) for kind, count in found}


def watching() -> Gauges:
    shown = Gauges()
    shown.watch("http://127.0.0.1", open_alarms=lambda: 0)
    return shown


def spoken(name: str) -> Worker:
    return Worker("here:1", name, "waiting", 0.0, 0.0, 0, 0.0)


def test_a_shop_without_mails_and_logs_misses_neither(without_either: None) -> None:
    """The control: what it has not is not at 0, so no alert asks for it."""
    assert alive(watching()).keys() == ALWAYS


@pytest.mark.parametrize(("setting", "kind"), [("MAIL_ON", "mailer"), ("SALE_LOG", "notary")])
def test_what_the_settings_ask_for_is_missed_from_the_start(without_either: None, setting: str, kind: str) -> None:
    with override_settings(**{setting: True}):
        assert alive(watching()) == dict.fromkeys([*ALWAYS, kind], 0)


@pytest.mark.parametrize("kind", ["mailer", "notary"])
def test_what_has_spoken_once_is_missed_when_it_is_gone(
    without_either: None, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    shown, heard = watching(), [spoken(kind), spoken("sandbox")]
    monkeypatch.setattr(gauges, "workers", lambda _client: heard)
    monkeypatch.setattr(gauges, "REDIS_SECONDS", 0.0)
    shown.look_at_redis(redis.connect())
    assert alive(shown)[kind] == alive(shown)["sandbox"] == 1
    heard.clear()
    shown.look_at_redis(redis.connect())
    assert alive(shown) == dict.fromkeys([*ALWAYS, kind], 0)  # nobody needs the sandbox


def test_a_notary_without_keys_does_not_start_where_there_are_public_logs() -> None:
    """It would speak and publish nothing, so nobody would miss it. The control: without logs it does nothing."""
    stop, heartbeat = StopFlag(), Heartbeat(redis.connect(), "notary")
    stop.set()
    with override_settings(SALE_LOG=False, LOG_KEYS=[]):
        run_notary(stop, heartbeat)
    with override_settings(SALE_LOG=True, LOG_KEYS=[]), pytest.raises(CommandError, match="FAIRDROP_LOG_KEYS"):
        run_notary(stop, heartbeat)


def test_a_settler_says_that_it_lives_before_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round over many deep lines takes longer than a worker may be silent."""
    stop, heartbeat, turns = StopFlag(), Mock(), list[int]()

    def take_turn(*_: Any, **__: Any) -> int:
        turns.append(heartbeat.note.call_args_list.count(call(busy=True)))
        if len(turns) == 3:
            stop.set()
        return 1

    monkeypatch.setattr(Settler, "_find_work", lambda _: (["a", "b", "c"], set()))
    monkeypatch.setattr(Settler, "_take_turn", take_turn)
    run_settler(stop, heartbeat)
    assert turns == [1, 2, 3]


@pytest.mark.usefixtures("shop_database")
def test_a_mailer_says_that_it_lives_before_each_address_with_news(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    stop, heartbeat, told = StopFlag(), Mock(), list[int]()

    def queue_news(_contact_id: int) -> int:
        told.append(heartbeat.note.call_args_list.count(call(busy=True)))
        stop.set()
        return 0

    settings.MAIL_ON = True
    monkeypatch.setattr(run_worker.os, "nice", lambda _: 0)
    monkeypatch.setattr(mails, "find_news", lambda *, over, **_: ([] if over else [1, 2, 3], 0))
    monkeypatch.setattr(mails, "queue_news", queue_news)
    monkeypatch.setattr(mailer.mail, "get_queued", Email.objects.none)
    run_mailer(stop, heartbeat)
    assert told == [1, 2, 3]


@pytest.mark.usefixtures("shop_database")
def test_a_mailer_says_that_it_lives_while_a_slow_server_takes_a_batch(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Longer than a worker may be silent. One that hangs there for longer than a batch may take falls silent."""
    stop, heartbeat = StopFlag(), Mock()

    def signs_of_life() -> int:
        return heartbeat.note.call_args_list.count(call(busy=True))

    def send_queued() -> tuple[int, int, int]:
        wait_until(lambda: signs_of_life() >= 2, timeout_seconds=30, what="it says that it lives")
        wait_until(lambda: "mailer-alive" not in {each.name for each in threading.enumerate()}, what="it falls silent")
        stop.set()
        return 1, 0, 0

    settings.MAIL_ON = True
    settings.POST_OFFICE = {**settings.POST_OFFICE, "BATCH_DELIVERY_TIMEOUT": 3}
    monkeypatch.setattr(mailer, "BEAT_SECONDS", 0.01)  # two signs of life come long before the end of the batch
    monkeypatch.setattr(run_worker.os, "nice", lambda _: 0)
    monkeypatch.setattr(mails, "find_news", lambda **_: ([], 0))
    queued = Email.objects.none()
    monkeypatch.setattr(queued, "exists", lambda: True)
    monkeypatch.setattr(mailer.mail, "get_queued", lambda: queued)
    monkeypatch.setattr(mailer.mail, "send_queued", send_queued)
    run_mailer(stop, heartbeat)
    assert signs_of_life() >= 2


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_web_process_without_keys_does_not_serve_where_there_are_public_logs(workers: str) -> None:
    """Its tickets could be checked by nobody but the shop. Of several none is started."""
    with override_settings(SALE_LOG=True, LOG_KEYS=[]), pytest.raises(CommandError, match="FAIRDROP_LOG_KEYS"):
        call_command("run_web", "--port", str(free_port()), "--workers", workers)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_web_process_is_started_where_one_shard_would_stop_all(
    monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setattr(run_worker, "wrong_settings", lambda client: ["one shard stops all"])
    with pytest.raises(CommandError, match="one shard stops all"):
        call_command("run_web", "--port", str(free_port()), "--workers", workers)
