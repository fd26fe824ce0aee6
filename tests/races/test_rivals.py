"""The other ways to sell keep what they promise and fail where their heads say so, on real servers.
Begins with its control: reading and then writing oversells.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections
from django.test import Client, override_settings

from loadtest.rivals import row_stock
from loadtest.rivals.articles import ArticleLock
from loadtest.rivals.rival import Rival, RivalAnswer, held_orders, redis_client
from loadtest.rivals.row_stock import RedisLock
from loadtest.rivals.strategies import RIVALS
from shop.buyers import issue_buyer
from tests.races.crowd import at_once
from tests.support.road import own_connection
from tests.support.servers.shop_processes import ROOT, migrate, run_manage
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess

pytestmark = pytest.mark.usefixtures("rival_tables")
BUYERS, CLICKS, UNITS = 12, 2, 5
WAIT_SECONDS = 120
QUEUED = "counter-then-queue"
CORRECT = [name for name, rival in RIVALS.items() if rival.correct and name != QUEUED]


@pytest.fixture(scope="module")
def rival_environment(lasting_environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process of the rivals, on the test database, with their tables."""
    environment = {**lasting_environment, "DJANGO_SETTINGS_MODULE": "loadtest.rivals.lean_settings"}
    migrate("rivals", environment=environment)
    return environment


@pytest.fixture
def rival_tables(rival_environment: dict[str, str], shop_database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open the test database, which has the rivals' tables."""
    # With a right to each of them, which a page of staff would show to another test.
    ContentType.objects.filter(app_label="rivals").delete()
    # Two dozen threads that ask 200 times a second leave the one that has the lock no time on a slow core.
    monkeypatch.setattr(row_stock, "POLL_SECONDS", 0.05)


@pytest.fixture
def new_sale(new_sku: Callable[[], str]) -> Callable[[Rival, int], str]:
    """Return a function that puts units of a new sale up with a rival."""

    def make(rival: Rival, units: int) -> str:
        sale = new_sku()
        rival.prepare(sale, units=units)
        return sale

    return make


def click(rival: Rival, sale: str, buyer: str) -> RivalAnswer:
    """Click until the answer is not "busy", on a connection of this thread's own."""
    try:
        answer = RivalAnswer.BUSY
        while answer == RivalAnswer.BUSY:
            answer = rival.buy(sale, buyer=buyer, key="")
        return answer
    finally:
        connections.close_all()


def crowd(rival: Rival, sale: str) -> dict[str, set[RivalAnswer]]:
    """Let every buyer click twice, all at once; return what each was told."""
    names = [f"buyer-{number // CLICKS}" for number in range(BUYERS * CLICKS)]
    answers = at_once(lambda number: click(rival, sale, names[number]), len(names))
    return {
        name: {answer for other, answer in zip(names, answers, strict=True) if other == name} for name in set(names)
    }


def test_reading_then_writing_oversells(new_sale: Callable[[Rival, int], str]) -> None:
    """The control: nothing pauses anybody, and the stock's constraint holds. Once would do; chance gets twenty goes."""
    rival = RIVALS["read-modify-write"]
    for _ in range(20):
        sale = new_sale(rival, 1)
        crowd(rival, sale)
        if rival.books(sale).oversold:
            break
    assert rival.books(sale).oversold > 0
    assert rival.books(sale).left == 0


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_rival_sells_every_unit_once(name: str, new_sale: Callable[[Rival, int], str]) -> None:
    rival = RIVALS[name]
    sale = new_sale(rival, UNITS)
    told = crowd(rival, sale)
    if rival.workers:
        while rival.work_once(sale):
            continue
        assert RivalAnswer.HELD not in set().union(*told.values())
        told = {buyer: {rival.look_up(sale, buyer=buyer, key="")} for buyer in told}
    books = rival.books(sale)
    assert (books.orders, books.oversold, books.unsold, books.left) == (UNITS, 0, 0, 0)
    assert sum(RivalAnswer.HELD in answers for answers in told.values()) == UNITS
    assert rival.waiting(sale) == 0


def ten_clicks_then_nine_others(rival: Rival, sale: str) -> list[RivalAnswer]:
    """One buyer clicks ten times at once, then nine others come; return what those are told."""
    assert set(at_once(lambda _: click(rival, sale, "impatient"), 10)) == {RivalAnswer.HELD}
    return [click(rival, sale, f"other-{number}") for number in range(9)]


def test_counting_alone_loses_a_unit_with_every_repeated_click_and_swallows_a_restock(
    new_sale: Callable[[Rival, int], str],
) -> None:
    rival = RIVALS["counter-alone"]
    sale = new_sale(rival, 10)
    assert set(ten_clicks_then_nine_others(rival, sale)) == {RivalAnswer.SOLD_OUT}
    assert (rival.books(sale).orders, rival.books(sale).unsold, rival.books(sale).left) == (1, 9, -9)
    rival.restock(sale, units=5)
    assert click(rival, sale, "late") == RivalAnswer.SOLD_OUT
    assert rival.books(sale).oversold == 0


@pytest.mark.parametrize("name", ["row-lock", "conditional-update", "unit-rows", "redis-lock"])
def test_the_same_clicks_lose_nothing_elsewhere(name: str, new_sale: Callable[[Rival, int], str]) -> None:
    """The control of the one above."""
    rival = RIVALS[name]
    sale = new_sale(rival, 10)
    assert set(ten_clicks_then_nine_others(rival, sale)) == {RivalAnswer.HELD}
    assert click(rival, sale, "late") == RivalAnswer.SOLD_OUT
    rival.restock(sale, units=1)
    assert click(rival, sale, "late") == RivalAnswer.HELD
    assert (rival.books(sale).orders, rival.books(sale).unsold) == (11, 0)


def test_a_lock_that_ends_during_a_pause_lets_two_in(new_sale: Callable[[Rival, int], str]) -> None:
    """The pause is ours, and on purpose: the stock row is held while the lock's short life ends."""
    rival = RedisLock(life_seconds=0.2)
    sale = new_sale(rival, 1)

    def buy_and_forgive(number: int) -> None:
        with suppress(Exception):  # the lock, when it is given back, is not theirs any more
            click(rival, sale, f"buyer-{number}")

    with ThreadPoolExecutor(2) as pool:
        with own_connection() as holder, holder.transaction():
            holder.execute("SELECT 1 FROM rival_stock WHERE sale = %s FOR UPDATE", [sale])
            buying = [pool.submit(buy_and_forgive, number) for number in range(2)]
            wait_until(lambda: waiting_writers() == 2, what="both have read and want to write")
        for each in buying:
            each.result(timeout=WAIT_SECONDS)
    assert rival.books(sale).oversold == 1


def test_the_articles_lock_outlives_a_dead_holder(new_sku: Callable[[], str]) -> None:
    """The flaw that was kept: EXPIRE is given a moment, so the lock of a process that died stays for decades."""
    name = new_sku()
    holder, other = ArticleLock(), ArticleLock()
    assert holder.lock(name)
    assert redis_client().ttl(f"rival:Lock:{name}") > 10 * 365 * 86_400
    assert not other.lock(name, timeout_seconds=0.2)
    assert not other.unlock(name)
    assert holder.unlock(name)
    assert other.lock(name)


def waiting_writers() -> int:
    """Return how many wait for the row of a rival's stock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s",
            ['UPDATE "rival_stock"%'],
        )
        return cursor.fetchone()[0]


def test_a_job_of_a_task_queue_writes_each_order_once(
    new_sale: Callable[[Rival, int], str], rival_environment: dict[str, str], tmp_path: Path
) -> None:
    rival = RIVALS[QUEUED]
    sale = new_sale(rival, UNITS)
    told = crowd(rival, sale)
    assert sum(answers != {RivalAnswer.SOLD_OUT} for answers in told.values()) == UNITS
    command = [sys.executable, "-m", "loadtest.rivals.work", QUEUED, sale]
    worker = ChildProcess(
        name="worker", arguments=command, environment=rival_environment, folder=ROOT, log_path=tmp_path / "worker.log"
    )
    try:
        worker.start()
        wait_until(lambda: held_orders(sale) == UNITS, what="every job is done")
        wait_until(lambda: rival.waiting(sale) == 0, what="no job is left")
    finally:
        worker.stop()
    assert (rival.books(sale).orders, rival.books(sale).left) == (UNITS, 0)


def test_a_job_that_could_not_be_queued_gives_its_unit_back(new_sale: Callable[[Rival, int], str]) -> None:
    rival = RIVALS[QUEUED]
    sale = new_sale(rival, 1)
    queue = "rq:queue:rivals"
    redis_client().delete(queue)
    redis_client().set(queue, "not a list")  # anyone who pushes a job is refused
    try:
        with pytest.raises(Exception, match="WRONGTYPE"):
            rival.buy(sale, buyer="buyer", key="")
    finally:
        redis_client().delete(queue)
    assert rival.books(sale).left == 1


def post(client: Client, name: str, sale: str, *, token: str, quantity: int = 1) -> tuple[int, str]:
    """Ask over HTTP; return status and what was told."""
    answer = client.post(
        f"/rivals/{name}/sales/{sale}/requests",
        data=json.dumps({"quantity": quantity}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )
    body = json.loads(answer.content)
    return answer.status_code, body.get("state") or body["code"]


@override_settings(ROOT_URLCONF="loadtest.rivals.urls")
def test_one_address_serves_every_rival(new_sale: Callable[[Rival, int], str]) -> None:
    sale = new_sale(RIVALS["conditional-update"], 1)
    (_, first), (_, second) = issue_buyer(), issue_buyer()
    client, name = Client(), "conditional-update"
    assert post(client, name, sale, token=first) == (201, "held")
    assert post(client, name, sale, token=first) == (201, "held")
    assert post(client, name, sale, token=second) == (409, "sold_out")
    assert post(client, name, sale, token="forged") == (401, "unauthenticated")
    assert post(client, name, sale, token=first, quantity=2) == (400, "invalid_request")
    assert post(client, "nobody", sale, token=first) == (404, "sale_not_found")
    looked = client.get(f"/rivals/{name}/sales/{sale}/requests", headers={"Authorization": f"Bearer {first}"})
    assert json.loads(looked.content)["state"] == "held"


def test_the_shop_has_no_rival() -> None:
    assert Client().post("/rivals/conditional-update/sales/any/requests").status_code == 404


def test_their_settings_have_them_and_no_migration_is_missing(rival_environment: dict[str, str]) -> None:
    code = (
        "from django.core.management import call_command; from django.urls import reverse; "
        "reverse('rival-requests', args=['a', 'b']); "
        "call_command('makemigrations', 'rivals', check_changes=True, dry_run=True)"
    )
    run_manage("shell", "-c", code, environment=rival_environment)
