"""Redis can be filled from the database at any time, any number of times, and never goes back. Real servers.
Every test has a SKU of its own, and runs on every kind of Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from inventory import redis
from inventory.audit import line as audit_line
from inventory.line import priming as line_priming
from inventory.line import reading, writing
from inventory.line.admission import Code
from inventory.locks.lock import Lock
from inventory.records import StockFigures
from inventory.redis import keys
from shop.models import Order, Sale
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from tests.support.road import admit, ask, forget, queue, run, settle_line, snapshot
from tests.support.shopkeeping import assert_books_balance, fill_line, make_sale, rewrite

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
FAR_AHEAD_US = 4 * 10**15


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of five units, two a buyer."""
    return make_sale(new_sku(), units=5, limit=2)


def code_of(card: SaleCard, buyer: str, *, key: str = "later", quantity: int = 1) -> int:
    return admit(card, ask(card, buyer, key=key, quantity=quantity))[0].code


def test_priming_again_changes_nothing(card: SaleCard) -> None:
    queue(card, "ann", "bob")
    settle_line(card, batch=1)
    queue(card, "eve")
    priming.prime_sale(card.slug)
    before = snapshot(card)
    priming.prime_sale(card.slug)
    assert snapshot(card) == before


def test_an_older_card_never_overwrites_newer_stock(card: SaleCard) -> None:
    queue(card, "ann", "bob")
    settle_line(card)
    seen = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    priming.prime_card(card)  # as it was before the two were held
    assert reading.figures(redis.connect(), card.sku, sale_id=card.sale_id) == seen
    assert seen is not None
    assert (seen.available, seen.held) == (3, 2)


def test_newer_stock_is_written_and_said_to_be_news(card: SaleCard) -> None:
    newer = StockFigures(available=9, held=0, sold=0, version=card.version + 1)
    older = newer._replace(available=1, version=card.version)
    client = redis.connect()
    assert line_priming.prime(client, card, versions={}, figures=newer, last_seq=0, fence=0)
    assert not line_priming.prime(client, card, versions={}, figures=older, last_seq=0, fence=0)
    seen = reading.figures(client, card.sku, sale_id=card.sale_id)
    assert seen is not None
    assert seen.available == 9


def test_new_terms_hold_from_the_next_request_on(card: SaleCard) -> None:
    Sale.objects.filter(pk=card.sale_id).update(operator_state="paused")
    assert code_of(card, "ann") == Code.ADMITTED
    priming.prime_sale(card.slug)
    assert code_of(card, "bob") == Code.PAUSED


def test_new_terms_of_an_older_card_leave_the_line_alone(card: SaleCard) -> None:
    queue(card, "ann")
    priming.prime_card(replace(card, line_capacity=0))
    look = audit_line.look(redis.connect(), card.sku)
    assert (look.waiting, look.admitted, look.queued) == (1, 1, 1)


@pytest.mark.parametrize(("lacking", "code"), [([1], Code.ADMITTED), ([2], Code.ADMITTED), ([], Code.TERMS_CHANGED)])
def test_terms_of_which_an_older_process_told_no_hold_are_compared_without_it(
    card: SaleCard, lacking: list[int], code: Code
) -> None:
    Sale.objects.filter(pk=card.sale_id).update(hold_seconds=card.hold_seconds - 1)
    priming.prime_sale(card.slug)
    run(*(("HDEL", keys.sales(card.sku), f"{card.sale_id}:terms:{version}:hold") for version in lacking))
    assert admit(card, ask(card, "ann")._replace(terms_version=1))[0].code == code


def test_live_units_return_into_an_empty_redis(card: SaleCard) -> None:
    admit(card, ask(card, "ann", quantity=2), ask(card, "bob"))
    settle_line(card)
    forget(card)
    assert not line_priming.is_primed(redis.connect(), card.sku)
    priming.prime_sale(card.slug)
    assert line_priming.is_primed(redis.connect(), card.sku)
    codes = [code_of(card, "ann"), code_of(card, "bob", quantity=2), code_of(card, "bob"), code_of(card, "eve")]
    assert codes == [Code.LIMIT_REACHED, Code.LIMIT_REACHED, Code.ADMITTED, Code.ADMITTED]


def test_live_units_of_many_buyers_return(new_sku: Callable[[], str]) -> None:
    many = 2 * line_priming.PAIRS_PER_CALL + 1
    card = make_sale(new_sku(), units=many)
    fill_line(card, buyers=many)
    settle_line(card)
    before = snapshot(card)[keys.live_units(card.sku)]
    forget(card)
    priming.prime_sale(card.slug)
    assert snapshot(card)[keys.live_units(card.sku)] == before


def test_live_units_that_admissions_have_moved_are_left_alone(card: SaleCard) -> None:
    queue(card, "ann")
    before = snapshot(card)
    field = writing.live_field(sale_id=card.sale_id, buyer="ann")
    line_priming.prime_fields(redis.connect(), card.sku, key=keys.live_units(card.sku), pairs=[(field, 0)])
    assert snapshot(card) == before


def test_nobody_is_admitted_between_forgetting_and_priming(card: SaleCard) -> None:
    forget(card)
    assert code_of(card, "ann") == Code.NOT_PRIMED


def test_after_a_loss_the_sale_goes_on_and_the_books_balance(card: SaleCard) -> None:
    queue(card, "ann", "bob")
    settle_line(card)
    forget(card)
    priming.prime_sale(card.slug)
    queue(card, "eve", "joe", "kim", "leo")
    settle_line(card)
    counts = assert_books_balance(card)
    assert (counts["orders_held"], counts["waiting"], counts["admitted"], counts["decided"]) == (5, 1, 6, 5)


def test_who_asks_again_after_a_loss_gets_the_old_outcome(card: SaleCard) -> None:
    (known,) = queue(card, "ann")
    settle_line(card)
    rewrite(known, seq=FAR_AHEAD_US)
    forget(card)
    Sale.objects.filter(pk=card.sale_id).update(per_buyer_limit=3)
    priming.prime_sale(card.slug)
    admit(card, ask(card, "ann"))
    settle_line(card)
    (place,) = reading.places(redis.connect(), card.sku, [known])
    assert place is not None
    assert place.record.state == "held"
    assert Order.objects.filter(sale_id=card.sale_id).count() == 1


def test_seq_never_falls_below_what_the_database_has_seen(card: SaleCard) -> None:
    (known,) = queue(card, "ann")
    settle_line(card)
    rewrite(known, seq=FAR_AHEAD_US)
    forget(card)
    priming.prime_sale(card.slug)
    answers = admit(card, ask(card, "bob"), ask(card, "eve"))
    assert [answer.seq for answer in answers] == [FAR_AHEAD_US + 1, FAR_AHEAD_US + 2]


def test_seq_never_falls_below_what_redis_has_given_out(card: SaleCard) -> None:
    run(("HSET", keys.stock(card.sku), "last_seq", FAR_AHEAD_US))
    priming.prime_sale(card.slug)
    (answer,) = admit(card, ask(card, "ann"))
    assert answer.seq == FAR_AHEAD_US + 1


def test_an_empty_redis_gets_fences_above_what_the_stock_row_has_seen(card: SaleCard) -> None:
    """A server whose clock is behind would give lower ones, which the stock row refuses for as long."""
    ahead = 9_000_000_000_000_000
    priming.prime_card(replace(card, fence=ahead))
    lock = Lock(redis.connect(), card.sku, ttl_ms=60_000)
    assert lock.acquire()
    assert lock.fence == ahead + 1
    lock.release()
