"""A store that does not answer is counted by every process that asked it, and a server of a Cluster by its name; what
is tried again because of it is counted by its step. A worker of which PostgreSQL refuses statements is not healthy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.telemetry import measures
from inventory.telemetry.measures import MAX_NODES, STORE_ERRORS, note_store_errors
from inventory.telemetry.page import serve as serve_metrics
from tests.integration.workers.test_metrics_ports import samples
from tests.support import road
from tests.support.crashes.worker_shop import PATIENT_WORKER, worker_process
from tests.support.servers.compose import check_health
from tests.support.servers.server_matrix import address_of, cluster_of_three
from tests.support.servers.shop_processes import program_with
from tests.support.shopkeeping import fill_line, make_sale, shop_of
from tests.support.waiting import wait_until
from workers.embedded.server import free_port

NAME, RETRIES = "fairdrop_store_errors_total", "fairdrop_retries_total"


@pytest.mark.parametrize(("worker", "variable", "store", "step"), [
    ("settler", "REDIS_URL", "redis", "redis"), ("settler", "DATABASE_URL", "postgresql", "settle"),
    ("expirer", "DATABASE_URL", "postgresql", "expire"), ("payments", "DATABASE_URL", "postgresql", "database"),
])  # fmt: skip
def test_a_worker_counts_the_calls_that_its_store_does_not_answer(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str], shop_database: None,
    worker: str, variable: str, store: str, step: str,
) -> None:  # fmt: skip
    """Nobody listens at the address of one store; the control: of the other one nothing is counted, nor other steps."""
    fill_line(make_sale(new_sku(), units=1), buyers=1)
    port, closed = free_port(), free_port()
    nowhere = f"redis://127.0.0.1:{closed}" if store == "redis" else f"postgres://nobody@127.0.0.1:{closed}/none"
    environment = {**process_environment, variable: nowhere, "FAIRDROP_METRICS_ADDRESS": f"127.0.0.1:{port}"}
    with worker_process(worker, environment, folder=tmp_path, program=program_with(PATIENT_WORKER)):
        wait_until(lambda: samples(port).get(f"{NAME}{{,{store}}}", 0) >= 2, what="its errors are counted")
        other = {"redis": "postgresql", "postgresql": "redis"}[store]
        assert samples(port)[f"{NAME}{{,{other}}}"] == 0
        wait_until(lambda: samples(port)[f"{RETRIES}{{{step}}}"] >= 2, what="what is tried again is counted")
        assert [name for name, count in samples(port).items() if name.startswith(RETRIES) and count] == [
            f"{RETRIES}{{{step}}}"
        ]


@pytest.mark.parametrize("worker", ["settler", "expirer", "payments"])
def test_what_postgresql_refuses_is_counted_apart_and_makes_the_worker_unhealthy(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str], worker: str
) -> None:
    """Its database answers, and has none of the tables, as for a release before its first migration."""
    fill_line(make_sale(new_sku(), units=1), buyers=1)
    port, empty = free_port(), urlsplit(process_environment["DATABASE_URL"])._replace(path="/postgres").geturl()
    environment = {**process_environment, "DATABASE_URL": empty, "FAIRDROP_METRICS_ADDRESS": f"127.0.0.1:{port}"}
    with worker_process(worker, environment, folder=tmp_path, program=program_with(PATIENT_WORKER)):
        wait_until(lambda: samples(port).get(f"{RETRIES}{{refused}}", 0) >= 2, what="what is refused is counted")
        assert [name for name, count in samples(port).items() if name.startswith(RETRIES) and count] == [
            f"{RETRIES}{{refused}}"
        ]
        checked = check_health(worker, {**environment, "TMPDIR": str(tmp_path)})
        assert (checked.returncode, checked.stderr) == (1, "")


def test_a_worker_is_healthy_unless_something_was_refused_since_the_last_look(
    process_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a store that is away for a moment, as in a flood, is waited for."""
    monkeypatch.setattr(measures.RETRIES, "counts", {"refused": 0, "expire": 0})
    address = f"127.0.0.1:{serve_metrics('127.0.0.1:0', 'expirer')}"
    environment = {**process_environment, "FAIRDROP_METRICS_ADDRESS": address, "TMPDIR": str(tmp_path)}
    ended = []
    for step in ("expire", "refused", "expire", "refused"):
        measures.RETRIES.add(step)
        checked = check_health("expirer", environment)
        ended.append((checked.returncode, checked.stderr))
    assert ended == [(0, ""), (1, ""), (0, ""), (1, "")]


def test_the_server_of_a_cluster_that_was_killed_is_named(process_environment: dict[str, str], tmp_path: Path) -> None:
    with cluster_of_three(tmp_path) as nodes, shop_of({**process_environment, "REDIS_URL": address_of(nodes)}):
        client = redis.connect(timeout_seconds=60)
        # A key of each server.
        keys = {redis.node_of(client, f"key-{number}"): f"key-{number}" for number in range(100)}
        assert len(keys) == 3
        names = {f"redis,{name}" for name in keys}
        for key in keys.values():
            redis.run_commands(client, [("GET", key)])
        before = dict(STORE_ERRORS.counts)
        assert {before[name] for name in names} == {0}  # the control: each is shown before it fails
        lost = next(name for name in keys if name.endswith(f":{nodes[0].port}"))
        nodes[0].child.kill_group()
        for _ in range(3):  # at first it is asked, then it is known to be away
            with pytest.raises(RedisUnavailable):
                redis.run_commands(client, [("GET", keys[lost])])
        for name in keys.keys() - {lost}:
            redis.run_commands(client, [("GET", keys[name])])
        after = {name: STORE_ERRORS.counts[name] - before[name] for name in names}
        assert after.pop(f"redis,{lost}") >= 3
        assert set(after.values()) == {0}


def test_servers_whose_names_change_are_counted_as_others_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures.STORE_ERRORS, "counts", {})
    for number in range(MAX_NODES + 10):
        note_store_errors("redis", f"10.0.0.{number}:6379")
    assert len(STORE_ERRORS.counts) == MAX_NODES + 1
    assert STORE_ERRORS.counts["redis,others"] == 10


@pytest.mark.usefixtures("shop_database")
def test_postgresql_looks_soon_whether_a_silent_client_is_still_there() -> None:
    """So the mailer's lock ends with its machine. By itself it looks after two hours, and while it sends a result
    after a quarter of an hour; at a Unix socket it need not.
    """
    names = ("tcp_keepalives_idle", "tcp_user_timeout")
    asked = "SELECT inet_client_addr() IS NOT NULL, (SELECT setting FROM pg_settings WHERE name = %s)"
    with connection.cursor() as cursor, road.own_connection() as worker:
        for name, soon in zip(names, ("5", "10000"), strict=True):
            cursor.execute(asked, [name])
            for is_tcp, told in (cursor.fetchone(), *worker.execute(asked, [name])):
                assert told == (soon if is_tcp else "0")
