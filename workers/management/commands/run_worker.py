"""manage.py run_worker NAME: runs one worker process until SIGTERM. Holds no logic of its own.
Exit code 0 after an orderly stop.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.gc_tuning import settle_in
from inventory.heartbeats import Heartbeat
from inventory.line.pubsub import WakeUps
from inventory.redis.clocks import clock_family
from inventory.redis.cluster_settings import wrong_settings
from inventory.telemetry import traces
from inventory.telemetry.page import Families
from inventory.telemetry.page import serve as serve_metrics
from shop.sandbox import deliveries
from workers import payments
from workers.clock_watch import ClockWatcher
from workers.expirer import Expirer
from workers.mailer import Mailer
from workers.notary import MAX_CHANGES, Notary
from workers.payments import PaymentsWorker
from workers.process_loop import StopFlag, run_until_stopped
from workers.reconciler.gauges import GAUGES
from workers.reconciler.loop import Reconciler
from workers.reconciler.recorder import Recorder
from workers.reconciler.requested import compare_asked
from workers.settler import Settler

log = structlog.get_logger(__name__)

# The sweep: how soon work is found when its hint was lost, or its holder died.
SWEEP_SECONDS = 0.5
# How long a hold may be over before the expirer looks: it must end within a second.
EXPIRY_SECONDS = 0.25
# How long a notice of the sandbox may be due before its worker looks.
NOTICE_SECONDS = 0.3
# How long the payments worker rests between two rounds of questions.
PAYMENTS_SECONDS = 2.0
# How long the reconciler rests between two rounds; each SKU has its own pace (workers/reconciler/loop.py).
RECONCILE_SECONDS = 1.0
# How long a mail may wait before the mailer looks.
MAIL_SECONDS = 1.0
MAILER_NICENESS = 10
# How long something may have happened before the notary looks: it is published within a second.
NOTARY_SECONDS = 0.3
# How long a call of a worker to Redis may take in the work itself.
WORK_TIMEOUT_SECONDS = 2.0
# A shard of a Cluster that is silent may keep a settler from the others for so long, once.
LOOK_TIMEOUT_SECONDS = 1.0
# A sign of life may hold no worker up for longer.
BEAT_TIMEOUT_SECONDS = 0.3
CLOCK_TIMEOUT_SECONDS = 1.0


def run_settler(stop: StopFlag, heartbeat: Heartbeat) -> None:
    """Settle until stopped."""
    client = redis.connect(timeout_seconds=WORK_TIMEOUT_SECONDS)
    wakeups = WakeUps(client)
    settler = Settler(
        client,
        batch=settings.SETTLE_BATCH,
        lock_ttl_ms=settings.LOCK_TTL_MS,
        stopping=stop.is_set,
        polling=redis.connect(timeout_seconds=LOOK_TIMEOUT_SECONDS),
        report_alive=partial(heartbeat.note, busy=True),
        report_away=partial(heartbeat.note, away="database away", busy=True),
    )
    try:
        run_until_stopped(
            settler.work_once,
            stop=stop,
            wait_for_work=lambda: wakeups.wait(seconds=SWEEP_SECONDS),
            heartbeat=heartbeat,
        )
    finally:
        settler.close()


def run_expirer(stop: StopFlag, heartbeat: Heartbeat) -> None:
    """End holds that are due until stopped."""
    expirer = Expirer(
        stopping=stop.is_set,
        report_alive=partial(heartbeat.note, busy=True),
        report_away=partial(heartbeat.note, away="database away", busy=True),
    )
    try:
        run_until_stopped(
            expirer.work_once,
            stop=stop,
            wait_for_work=lambda: stop.wait(EXPIRY_SECONDS),
            heartbeat=heartbeat,
        )
    finally:
        expirer.close()


def run_reconciler(stop: StopFlag, heartbeat: Heartbeat) -> None:
    """Record, compare and mend until stopped."""
    client = redis.connect(timeout_seconds=WORK_TIMEOUT_SECONDS)
    report_alive = partial(heartbeat.note, busy=True)
    reconciler = Reconciler(client, stopping=stop.is_set, gentle=True, report_alive=report_alive)

    recorder = Recorder(client, noted=GAUGES.note)
    GAUGES.watch(settings.PUBLIC_URL, open_alarms=lambda: reconciler.open_alarms)

    def look() -> None:
        recorder.work_once()
        GAUGES.look_at_redis(client)

    def serve_staff() -> None:
        look()
        compare_asked(reconciler, client, between_pages=look)

    def one_round() -> int:
        serve_staff()
        heartbeat.note(done=reconciler.work_once(between_skus=serve_staff))
        return 0  # rest after it, whatever it found: what is still wrong has time to come right by itself

    run_until_stopped(one_round, stop=stop, wait_for_work=lambda: stop.wait(RECONCILE_SECONDS), heartbeat=heartbeat)


def run_payments(stop: StopFlag, heartbeat: Heartbeat) -> None:
    """Ask providers about open payments until stopped."""
    worker = PaymentsWorker(stopping=stop.is_set, report_alive=partial(heartbeat.note, busy=True))

    def one_round() -> int:
        heartbeat.note(done=worker.work_once())
        return 0  # rest after it: a question that brought nothing is not asked again at once

    run_until_stopped(one_round, stop=stop, wait_for_work=lambda: stop.wait(PAYMENTS_SECONDS), heartbeat=heartbeat)


def run_sandbox(stop: StopFlag, heartbeat: Heartbeat) -> None:
    """Send the sandbox's notices until stopped."""
    run_until_stopped(
        deliveries.send_due,
        stop=stop,
        wait_for_work=lambda: stop.wait(NOTICE_SECONDS),
        heartbeat=heartbeat,
    )


def run_mailer(stop: StopFlag, heartbeat: Heartbeat) -> None:
    """Queue and send mails until stopped, a batch a second; purchases come first."""
    os.nice(MAILER_NICENESS)
    mailer = Mailer(rest=lambda: stop.wait(MAIL_SECONDS), report_alive=partial(heartbeat.note, busy=True))
    run_until_stopped(mailer.work_once, stop=stop, wait_for_work=lambda: stop.wait(MAIL_SECONDS), heartbeat=heartbeat)


def run_notary(stop: StopFlag, heartbeat: Heartbeat) -> None:
    """Publish the sales' logs until stopped."""
    refuse_missing_keys()
    notary = Notary(redis.connect(timeout_seconds=WORK_TIMEOUT_SECONDS))

    def publish() -> int:
        added = notary.work_once()
        if 0 < added < MAX_CHANGES:
            stop.wait(NOTARY_SECONDS)  # a step has its cost before its first leaf: let the next ones gather
        return added

    run_until_stopped(publish, stop=stop, wait_for_work=lambda: stop.wait(NOTARY_SECONDS), heartbeat=heartbeat)


def refuse_missing_keys() -> None:
    """Raise CommandError where there are public logs and no keys, in a process that signs."""
    if settings.SALE_LOG and not settings.LOG_KEYS:
        raise CommandError("this process signs: FAIRDROP_LOG_KEYS must be set where FAIRDROP_SALE_LOG is on")


def refuse_wrong_settings() -> None:
    """Raise CommandError when the Redis Cluster is set so that one shard that is away would stop all SKUs."""
    try:
        wrong = wrong_settings(redis.connect(timeout_seconds=CLOCK_TIMEOUT_SECONDS))
    except RedisUnavailable:
        return  # what connects next says so
    if wrong:
        raise CommandError(f"Redis Cluster: {'; '.join(wrong)}")


WORKERS = {
    "settler": run_settler,
    "expirer": run_expirer,
    "payments": run_payments,
    "reconciler": run_reconciler,
    "sandbox": run_sandbox,
    "mailer": run_mailer,
    "notary": run_notary,
}
# What only one kind of worker shows, as well as what all count.
OWN_GAUGES: dict[str, Families] = {"reconciler": GAUGES.collect, "payments": payments.GAUGE.collect}


class Command(BaseCommand):
    help = "Run one worker process until SIGTERM: " + ", ".join(sorted(WORKERS))
    # As run_web: what they say is for people, and `migrate` has said it.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", choices=sorted(WORKERS))

    def handle(self, *args: Any, **options: Any) -> None:
        log.info("worker started", action="worker_started", worker=options["name"])
        refuse_wrong_settings()
        if options["name"] == "mailer":
            import shop.urls  # noqa: F401 - mails have addresses of pages; the first would load them in its transaction
        settle_in()
        stop = StopFlag()
        stop.install()
        own = OWN_GAUGES.get(options["name"], tuple)
        serve_metrics(settings.METRICS_ADDRESS, options["name"], lambda: [clock_family(), *own()])
        traces.start(options["name"])
        heartbeat = Heartbeat(redis.connect(timeout_seconds=BEAT_TIMEOUT_SECONDS), options["name"])
        watcher = ClockWatcher(redis.connect(timeout_seconds=CLOCK_TIMEOUT_SECONDS))
        watcher.start()
        WORKERS[options["name"]](stop, heartbeat)
        watcher.end()
        traces.end()
        log.info("worker stopped", action="worker_stopped", worker=options["name"])
