"""Real worker processes say that they live, and the reconciler does at once what staff asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from inventory import heartbeats, reconcile_requests, redis
from inventory.heartbeats import Worker, workers
from inventory.redis import keys
from tests.support.crashes.worker_shop import PATIENT_WORKER, worker_process
from tests.support.road import run
from tests.support.servers.shop_processes import program_with
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess

pytestmark = pytest.mark.usefixtures("shop_database")


def worker(name: str, environment: Mapping[str, str], folder: Path) -> AbstractContextManager[ChildProcess]:
    """Run one worker process until the end of the block."""
    return worker_process(name, environment, folder=folder, program=program_with(PATIENT_WORKER))


def seen(child: ChildProcess) -> list[Worker]:
    return [each for each in workers(redis.connect()) if each.who.endswith(f":{child.pid}")]


@pytest.mark.parametrize("name", ["settler", "expirer", "payments", "reconciler", "sandbox"])
def test_each_worker_speaks_while_it_runs(
    process_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(heartbeats, "SILENT_SECONDS", 300.0)  # however slow the machine is
    with worker(name, process_environment, tmp_path) as child:
        (first,) = wait_until(lambda: seen(child), what=f"{name} speaks")
        assert (first.name, first.alive) == (name, True)
    # An orderly stop takes the note away. The sandbox may be in the middle of what other tests have left to send.
    assert name == "sandbox" or seen(child) == []


def test_one_that_was_killed_is_silent(
    process_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker("expirer", process_environment, tmp_path) as child:
        wait_until(lambda: seen(child), what="it speaks")
        child.kill_group()
        monkeypatch.setattr(heartbeats, "SILENT_SECONDS", 0.5)
        wait_until(lambda: [each for each in seen(child) if not each.alive], what="it is silent")


def test_the_reconciler_does_what_staff_asked_for(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    card = make_sale(new_sku(), units=3)
    client = redis.connect()
    with worker("reconciler", process_environment, tmp_path):
        reconcile_requests.ask(client, card.sku, actor="anna")

        def done() -> bool:
            last = reconcile_requests.last(client, card.sku)
            return last is not None and last["state"] == reconcile_requests.DONE

        wait_until(done, what="it was compared")
    assert reconcile_requests.last(client, card.sku)["actor"] == "anna"
    assert run(("HGET", keys.stock(card.sku), "available")) == ["3"]
