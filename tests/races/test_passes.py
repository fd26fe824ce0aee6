"""Two hundred presses with one pass, fifty at a time: one request is let in. Begins with its control."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from threading import Barrier

import pytest

from inventory.line.admission import Code
from inventory.redis import keys
from tests.races.crowd import at_once
from tests.support.road import admit, ask, run
from tests.support.shopkeeping import assert_books_balance, make_sale

pytestmark = pytest.mark.usefixtures("shop_database")
# As many connections as one process keeps would be less than twice this.
SESSIONS, EACH = 50, 4
PRESSES = SESSIONS * EACH


def test_the_control_looking_and_then_marking_lets_in_many(new_sku: Callable[[], str]) -> None:
    card, everybody_has_looked = make_sale(new_sku(), units=SESSIONS), Barrier(SESSIONS)
    field = (keys.passes(card.sku), f"{card.sale_id}:shared")

    def enter(number: int) -> bool:
        (spent,) = run(("HGET", *field))
        everybody_has_looked.wait(timeout=120)
        if spent:
            return False
        run(("HSET", *field, str(number)))
        return True

    assert sum(at_once(enter, SESSIONS)) == SESSIONS


def test_one_pass_pressed_at_once_lets_one_request_in(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=PRESSES, limit=PRESSES)

    def enter(number: int) -> list[int]:
        wishes = [ask(card, "ann", key=f"{number}-{again}")._replace(pass_id="shared") for again in range(EACH)]
        return [admit(card, wish)[0].code for wish in wishes]

    assert Counter(chain.from_iterable(at_once(enter, SESSIONS))) == {Code.ADMITTED: 1, Code.PASS_SPENT: PRESSES - 1}
    assert_books_balance(card)


def test_one_request_pressed_at_once_is_one_place(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=PRESSES, limit=PRESSES)
    wish = ask(card, "ann", key="double click")._replace(pass_id="shared")
    answers = at_once(lambda _number: admit(card, wish)[0], SESSIONS)
    assert [answer.code for answer in answers].count(Code.ADMITTED) == 1
    assert len({answer.seq for answer in answers}) == 1
