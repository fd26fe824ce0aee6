"""Until a sale is everybody's, who lacks a code or a listed e-mail is refused by the script that admits, by its clock.
Each test has a SKU of its own, on each kind of Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from inventory import redis
from inventory.line import admission
from inventory.line.admission import NO_CODE, NO_EMAIL, Answer, Code, SaleLine
from inventory.redis import keys
from loadtest.mutants.layers import Script
from shop.sales.catalogue import SaleCard
from tests.support.road import ask, run, snapshot
from tests.support.shopkeeping import assert_books_balance, make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
NEVER, PAST, LATER = 0, 1, 4_000_000_000_000_000
# How soon a sale is everybody's: the later ones are for a machine on which the first moment is over at the first press.
SOON_SECONDS = (0.3, 3, 30)


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale, one unit a buyer."""
    return make_sale(new_sku(), units=1_000, limit=1)


def press(
    card: SaleCard, *presses: tuple[str, str], public_us: int, pass_id: str = "", entry: str = ""
) -> list[Answer]:
    """Ask in one call; presses: the buyer, and what their request lacks."""
    asks = [ask(card, buyer)._replace(early=lacks, pass_id=pass_id, entry=entry) for buyer, lacks in presses]
    return admission.admit(redis.connect(), SaleLine(card.sale_id, card.sku, public_us=public_us), asks)


def codes(answers: list[Answer]) -> list[int]:
    return [answer.code for answer in answers]


@pytest.mark.parametrize(("public_us", "later"), [(NEVER, False), (LATER, False), (PAST, True)])
def test_who_lacks_something_is_let_in_once_the_sale_is_everybodys(card: SaleCard, public_us: int, later: bool) -> None:
    """The control is the third: the sale is everybody's, and all are let in."""
    found = codes(press(card, ("ann", NO_CODE), ("bob", NO_EMAIL), ("eve", ""), public_us=public_us))
    refused = [Code.CODE_REQUIRED, Code.EMAIL_REQUIRED]
    assert found == [*([Code.ADMITTED] * 2 if later else refused), Code.ADMITTED]
    assert_books_balance(card)


def test_the_moment_is_that_of_the_lines_clock(card: SaleCard) -> None:
    """Somebody presses without end: the first that is let in has a place of that moment or after it."""
    numbers = count()
    for until_public in SOON_SECONDS:
        public_us = int((time.time() + until_public) * 1_000_000)
        answers = answers_until_in(card, numbers, public_us=public_us)
        if len(answers) > 1:
            break
    assert {each.code for each in answers[:-1]} == {Code.CODE_REQUIRED}
    assert answers[-1].seq >= public_us


def answers_until_in(card: SaleCard, numbers: Iterator[int], *, public_us: int) -> list[Answer]:
    """Let one new buyer after the other press; return their answers up to the first that is let in."""
    answers: list[Answer] = []

    def is_in() -> bool:
        answers.extend(press(card, (f"buyer-{next(numbers)}", NO_CODE), public_us=public_us))
        return answers[-1].code == Code.ADMITTED

    wait_until(is_in)
    return answers


def test_a_refused_request_changes_nothing_and_spends_nothing(card: SaleCard) -> None:
    before = snapshot(card)
    press(card, ("ann", NO_CODE), ("bob", NO_EMAIL), public_us=LATER, pass_id="pass", entry="@mine")
    assert snapshot(card) == before
    assert run(("HLEN", keys.passes(card.sku))) == [0]


def test_a_request_in_line_is_answered_as_before(card: SaleCard) -> None:
    (first,) = press(card, ("ann", ""), public_us=LATER)
    (again,) = press(card, ("ann", NO_CODE), public_us=LATER)
    assert (again.code, again.seq) == (Code.KNOWN_BEFORE + ord("q"), first.seq)


def test_once_it_is_everybodys_passes_and_entries_hold_as_before(card: SaleCard) -> None:
    found = press(card, ("ann", NO_CODE), ("bob", NO_CODE), public_us=PAST, entry="@mine")
    assert codes(found) == [Code.ADMITTED, Code.EMAIL_USED]


def test_without_the_guard_everybody_is_let_in_early(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of all above."""
    assert codes(press(card, ("ann", NO_CODE), public_us=LATER)) == [Code.CODE_REQUIRED]
    part = "if is_early and not code and lacks[i] ~= '' then code = lacks[i] == '!' and 17 or 19 end"
    Script(says="the presale", script="admit", part=part).take_away(monkeypatch.setattr)
    assert codes(press(card, ("ann", NO_CODE), public_us=LATER)) == [Code.ADMITTED]
