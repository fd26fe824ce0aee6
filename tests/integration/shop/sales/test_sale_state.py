"""A sale's state is one rule, `sale_state`. What settlement reads in SQL and admission in Redis agrees with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.utils import timezone

from inventory.line.admission import Code
from shop.models import Sale
from shop.order_rows import recv_terms, send_terms
from tests.support import road
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database")
# Seconds from now to the opening and to the end.
WINDOWS = {"before": (600, 1200), "during": (-600, 600), "after": (-1200, -600)}
STATES = {
    ("on", "before"): "scheduled", ("on", "during"): "open", ("on", "after"): "closed",
    ("paused", "before"): "scheduled", ("paused", "during"): "paused", ("paused", "after"): "closed",
    ("closed", "before"): "closed", ("closed", "during"): "closed", ("closed", "after"): "closed",
}  # fmt: skip
ANSWERS = {"scheduled": Code.NOT_OPEN, "open": Code.ADMITTED, "paused": Code.PAUSED, "closed": Code.CLOSED}


@pytest.mark.parametrize(("operator_state", "window"), STATES)
def test_sql_and_redis_judge_a_sale_by_the_rule(new_sku: Callable[[], str], operator_state: str, window: str) -> None:
    opens, closes = WINDOWS[window]
    card = make_sale(
        new_sku(), units=1, opens_in_seconds=opens, closes_in_seconds=closes, operator_state=operator_state
    )
    state = Sale.objects.get(pk=card.sale_id).state_at(timezone.now())
    assert state == STATES[operator_state, window]
    with connection.cursor() as cursor:
        send_terms(cursor, [card.sale_id])
        sale = recv_terms(cursor)[card.sale_id]
    # One that was paused before it opens gives nothing either, should it be brought forward meanwhile.
    assert (sale.over, sale.paused) == (state == "closed", operator_state == "paused" and state != "closed")
    (answer,) = road.admit(card, road.ask(card, "ann"))
    assert answer.code == ANSWERS[state]


def test_every_operator_state_is_judged() -> None:
    assert {state for state, _ in STATES} == set(Sale.OperatorState.values)
