"""The cost of a purchase is measured behind a line of a set length, whatever other lines a settler looks at meanwhile.
The control stops the same settler after so many questions instead: then those lines use them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from inventory.redis import keys
from loadtest.bench.shop.costs import NEVER, Brake
from shop.sales.catalogue import SaleCard
from tests.support.road import queue, run, settler
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database")

BATCH, ASKED, LEFT = 10, 40, 20


def waiting(card: SaleCard) -> int:
    (count,) = run(("ZCARD", keys.line(card.sku)))
    return int(count)


@pytest.fixture
def long_line(new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> SaleCard:
    """Return a sale with a line, and make others that a settler comes to first: each has a buyer to decide."""
    monkeypatch.setattr("workers.settler.TURN_SECONDS", 3600)  # however slow the machine is, a turn is a whole one
    *others, last = sorted(new_sku() for _ in range(4))
    for sku in others:
        queue(make_sale(sku, units=1), "ann")
    card = make_sale(last, units=ASKED)
    queue(card, *(f"buyer-{number}" for number in range(ASKED)))
    return card


def test_a_settler_stops_when_the_line_is_as_short_as_told(long_line: SaleCard) -> None:
    brake = Brake(lambda: waiting(long_line))
    with settler(batch=BATCH, stopping=brake.stop) as worker:
        brake.stops_at = LEFT
        worker.work_once()
        assert waiting(long_line) == LEFT
        brake.stops_at = NEVER
        worker.work_once()
        assert waiting(long_line) == 0


def test_control_counted_questions_are_used_up_by_other_lines(long_line: SaleCard) -> None:
    questions: Iterator[bool] = iter([False] * ((ASKED - LEFT) // BATCH))
    with settler(batch=BATCH, stopping=lambda: next(questions, True)) as worker:
        worker.work_once()
    assert waiting(long_line) == ASKED
