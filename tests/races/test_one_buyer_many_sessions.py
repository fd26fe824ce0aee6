"""One buyer in fifty sessions gets what one buyer may have: look-then-write lets all through, the script lets one.
Begins with its control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Barrier

import pytest

from inventory.line import writing
from inventory.line.admission import Code
from inventory.redis import keys
from inventory.states import State
from shop.models import Order
from tests.races.crowd import at_once, line_is_empty, two_settlers
from tests.support.road import admit, ask, own_connection, request, run
from tests.support.shopkeeping import assert_books_balance, make_sale
from tests.support.waiting import wait_until
from workers.settlement import settle_batch

pytestmark = pytest.mark.usefixtures("shop_database")
SESSIONS = 50


def test_looking_before_writing_lets_every_session_through(new_sku: Callable[[], str]) -> None:
    """The control: read the buyer's units, and if there are none yet, add one."""
    card, everybody_has_read = make_sale(new_sku(), units=SESSIONS), Barrier(SESSIONS)
    units = (keys.live_units(card.sku), writing.live_field(sale_id=card.sale_id, buyer="ann"))

    def enter(_number: int) -> bool:
        (had,) = run(("HGET", *units))
        everybody_has_read.wait(timeout=120)
        if int(had or 0) >= card.per_buyer_limit:
            return False
        run(("HINCRBY", *units, 1))
        return True

    assert sum(at_once(enter, SESSIONS)) == SESSIONS
    assert run(("HGET", *units)) == [str(SESSIONS)]


@pytest.mark.parametrize("limit", [1, 3])
def test_the_script_lets_no_more_through_than_the_limit(new_sku: Callable[[], str], limit: int) -> None:
    card = make_sale(new_sku(), units=SESSIONS, limit=limit)
    answers = at_once(lambda number: admit(card, ask(card, "ann", key=f"session-{number}"))[0], SESSIONS)
    assert Counter(answer.code for answer in answers) == {
        Code.ADMITTED: limit,
        Code.LIMIT_REACHED: SESSIONS - limit,
    }
    with two_settlers(batch=5):
        wait_until(lambda: line_is_empty(card))
    assert Order.objects.filter(sale_id=card.sale_id, buyer="ann", state="held").count() == limit
    assert_books_balance(card)


def test_one_key_in_fifty_sessions_is_one_request(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=SESSIONS, limit=SESSIONS)
    answers = at_once(lambda _number: admit(card, ask(card, "ann", key="double click"))[0], SESSIONS)
    assert [answer.code for answer in answers].count(Code.ADMITTED) == 1
    assert len({answer.seq for answer in answers}) == 1


def test_what_slips_past_the_door_is_refused_by_the_settlement(new_sku: Callable[[], str]) -> None:
    """Redis may have lost its counts: the database then holds the limit alone, over batches too."""
    card = make_sale(new_sku(), units=SESSIONS)
    asked = [request(card, "ann", seq=number, key=f"session-{number}") for number in range(1, SESSIONS + 1)]
    with own_connection() as connection:
        settled = [
            each.record.state
            for part in (asked[:25], asked[25:])
            for each in settle_batch(connection, sku=card.sku, fence=1, requests=part).settled
        ]
    assert settled == [State.HELD] + [State.REFUSED] * (SESSIONS - 1)
