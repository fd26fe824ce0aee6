"""Proves that without PostgreSQL the line still takes people in, nobody is told "held", and all are decided later.
Stops a PostgreSQL of its own in the middle of a long line; web and settlers are never restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.db import connection

from inventory import redis
from inventory.line import reading
from inventory.line.reading import LineFigures
from inventory.records import request_id
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import OwnStore, own_postgres, own_valkey
from tests.support.http_calls import Buyer, Caller
from tests.support.servers.shop_processes import settler_process, web_process
from tests.support.shopkeeping import assert_books_balance, close_sale, fill_line, make_sale, shop_of
from tests.support.waiting import wait_until

CROWD, UNITS = 3_000, 2_000
LATER = 25


@dataclass(frozen=True)
class Shop:
    """A web process with stores of its own, a sale, and settlers in small batches as a test starts them."""

    web: Caller
    postgres: OwnStore
    card: SaleCard
    folder: Path
    start_settler: Callable[[str], object]
    start_web: Callable[[], Caller]

    @property
    def figures(self) -> LineFigures:
        """What Redis knows of the sale's stock."""
        figures = reading.figures(redis.connect(), self.card.sku, sale_id=self.card.sale_id)
        assert figures is not None
        return figures

    def settler_said(self, text: str) -> bool:
        """Say whether a settler's log has `text`."""
        return any(text in log.read_text() for log in self.folder.glob("settler*.log"))


@pytest.fixture
def shop(process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path) -> Iterator[Shop]:
    """Open a shop with a PostgreSQL and a Valkey of its own."""
    with ExitStack() as running:
        valkey = running.enter_context(own_valkey(tmp_path))
        environment = {**process_environment, "REDIS_URL": valkey.url, "FAIRDROP_SETTLE_BATCH": "10"}
        environment["FAIRDROP_REDIS_TIMEOUT_SECONDS"] = "30"  # only PostgreSQL is taken away here
        postgres = running.enter_context(own_postgres(environment=environment))
        environment |= {"DATABASE_URL": postgres.url}
        running.enter_context(shop_of(environment))
        card = make_sale(new_sku(), units=UNITS, line_capacity=CROWD)
        web = running.enter_context(web_process(environment, folder=tmp_path))
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200)

        def start_settler(name: str) -> object:
            return running.enter_context(settler_process(environment, folder=tmp_path, name=name))

        def start_web() -> Caller:
            (tmp_path / "later").mkdir()
            return running.enter_context(web_process(environment, folder=tmp_path / "later"))

        yield Shop(web, postgres, card, tmp_path, start_settler, start_web)


def ask(shop: Shop) -> tuple[Buyer, str]:
    """Let a new buyer ask; return who, and the id of the admitted request."""
    buyer = shop.web.new_buyer()
    answer = shop.web.ask(shop.card.slug, buyer)
    assert answer.status == 202, answer
    return buyer, answer.json()["request_id"]


def start_postgres_again(shop: Shop) -> None:
    """Bring the database back, for us as well: our own connection went with the old one."""
    connection.close()
    shop.postgres.start_again()


def stop_postgres_in_the_middle(shop: Shop) -> None:
    """Start two settlers on a long line and take their database away when some of it is decided and some is not."""
    fill_line(shop.card, buyers=CROWD // 2)
    for name in ("settler-1", "settler-2"):
        shop.start_settler(name)
    wait_until(lambda: shop.figures.decided >= 50)
    shop.postgres.stop_at_once()
    # However late it was stopped, some wait: these are decided by nobody before it is back.
    fill_line(shop.card, buyers=CROWD - CROWD // 2, named="later")
    wait_until(lambda: shop.settler_said("settle_retry"), what="a settler misses its database")
    assert 0 < shop.figures.decided < CROWD - 100


def test_without_postgres_the_line_takes_people_in_and_nobody_is_told_held(shop: Shop) -> None:
    stop_postgres_in_the_middle(shop)
    decided = shop.figures.decided
    later = [ask(shop) for _ in range(LATER)]
    for _ in range(3):
        states = {shop.web.status(name, buyer).json()["state"] for buyer, name in later}
        assert states == {"queued"}
    assert shop.figures.decided == decided
    assert shop.figures.queued == CROWD - decided + LATER


def test_when_postgres_is_back_everyone_is_decided_once_and_in_order(shop: Shop) -> None:
    stop_postgres_in_the_middle(shop)
    later = [ask(shop) for _ in range(LATER)]
    start_postgres_again(shop)
    close_sale(shop.card)
    wait_until(lambda: shop.figures.decided == CROWD + LATER, timeout_seconds=900, what="everything is decided")
    counts = assert_books_balance(shop.card)
    assert (counts["orders_held"], counts["orders_sold_out"]) == (UNITS, CROWD + LATER - UNITS)
    states = list(Order.objects.order_by("seq").values_list("state", flat=True))
    assert states == ["held"] * UNITS + ["sold_out"] * (CROWD + LATER - UNITS)
    assert {shop.web.status(name, buyer).json()["state"] for buyer, name in later} == {"sold_out"}


def test_what_redis_says_was_held_before_the_fall_is_held_after_it(shop: Shop) -> None:
    """Nobody is answered before COMMIT: the decided of the line are all in the database, whenever it fell."""
    stop_postgres_in_the_middle(shop)
    decided = shop.figures.decided
    start_postgres_again(shop)
    assert Order.objects.count() >= decided
    first = request_id(
        sale_id=shop.card.sale_id,
        request_key=shop.card.request_id_key(),
        buyer="buyer-0000000",
        idempotency_key="",
    )
    assert Order.objects.get(request_id=first).state == "held"


def test_the_process_lives_without_postgres_and_says_that_it_is_not_ready(shop: Shop) -> None:
    buyer, name = ask(shop)
    wait_until(lambda: shop.web.get("/readyz").status == 200, what="the shop is ready")
    shop.postgres.stop_at_once()
    wanted = (503, {"redis": True, "database": False})
    wait_until(lambda: ((ready := shop.web.get("/readyz")).status, ready.json()["stores"]) == wanted)
    assert shop.web.get("/healthz").status == 200
    assert shop.web.status(name, buyer).json()["state"] == "queued"
    assert shop.web.get(f"/api/v1/sales/{shop.card.slug}").status == 200
    # A sale nobody has heard of cannot be looked up; once the last reading of the catalogue is old, it is said so.
    wait_until(lambda: shop.web.get("/api/v1/sales/made-while-it-was-away").status == 503)
    unknown = shop.web.get("/api/v1/sales/made-while-it-was-away")
    assert (unknown.json()["code"], unknown.headers["retry-after"]) == ("unavailable", "1")
    start_postgres_again(shop)
    wait_until(lambda: shop.web.get("/readyz").status == 200, what="the shop is ready again")


def test_a_process_that_starts_meanwhile_does_not_say_that_there_are_no_sales(shop: Shop) -> None:
    shop.postgres.stop_at_once()
    later = shop.start_web()
    answers = {later.get("/api/v1/sales").status for _ in range(3)}
    assert answers == {503}
    assert shop.web.get("/api/v1/sales").status == 200  # the control: one that has read them
    start_postgres_again(shop)
    wait_until(lambda: later.get("/api/v1/sales").status == 200, what="the sales are read")
    assert [each["slug"] for each in later.get("/api/v1/sales").json()] == [shop.card.slug]
