"""An e-mail lets in one request, by the script that admits. Each test has a SKU of its own, on each kind of Redis."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inventory import redis
from inventory.line import admission
from inventory.line.admission import NO_EMAIL, Answer, Code, SaleLine
from inventory.redis import keys
from loadtest.mutants.layers import Script
from shop.sales.catalogue import SaleCard
from tests.support.road import ask, run, snapshot
from tests.support.shopkeeping import assert_books_balance, make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
KNOWN_QUEUED = Code.KNOWN_BEFORE + ord("q")


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of six units, one a buyer."""
    return make_sale(new_sku(), units=6, limit=1, line_capacity=0)


def press(card: SaleCard, *presses: tuple[str, str], pass_id: str = "") -> list[Answer]:
    """Ask in one call; presses: the buyer, and what stands for their e-mail."""
    asks = [ask(card, buyer)._replace(pass_id=pass_id, entry=entry) for buyer, entry in presses]
    return admission.admit(redis.connect(), SaleLine(card.sale_id, card.sku), asks)


def codes(answers: list[Answer]) -> list[int]:
    return [answer.code for answer in answers]


@pytest.mark.parametrize("entry", ["@one", ""])
def test_an_email_lets_in_one_request_of_all_its_buyers(card: SaleCard, entry: str) -> None:
    """The control is a sale in which no e-mail is counted."""
    found = [press(card, (buyer, entry))[0].code for buyer in ("ann", "bob", "eve")]
    assert found == [Code.ADMITTED] + [Code.EMAIL_USED if entry else Code.ADMITTED] * 2
    assert codes(press(card, ("dan", "@another"))) == [Code.ADMITTED]


def test_many_at_once_with_one_email(card: SaleCard) -> None:
    found = codes(press(card, *[(f"buyer-{number}", "@shared") for number in range(5)], ("own", "@own")))
    assert found == [Code.ADMITTED, *[Code.EMAIL_USED] * 4, Code.ADMITTED]
    assert_books_balance(card)


def test_a_request_in_line_needs_no_email(card: SaleCard) -> None:
    (first,) = press(card, ("ann", "@mine"))
    before = snapshot(card)
    again = [
        *press(card, ("ann", "@mine"), ("ann", "@other"), ("ann", "")),
        *press(card, ("ann", ""), pass_id=NO_EMAIL),
    ]
    assert codes(again) == [KNOWN_QUEUED] * 4
    assert {answer.seq for answer in again} == {first.seq}
    assert snapshot(card) == before
    assert codes(press(card, ("bob", "@other"))) == [Code.ADMITTED]


def test_without_an_email_nobody_is_let_in_and_nothing_changes(card: SaleCard) -> None:
    before = snapshot(card)
    assert codes(press(card, ("ann", ""), pass_id=NO_EMAIL)) == [Code.EMAIL_REQUIRED]
    assert snapshot(card) == before


def test_who_is_refused_has_not_used_their_email(card: SaleCard) -> None:
    press(card, *[(f"buyer-{number}", "") for number in range(6)])
    assert codes(press(card, ("ann", "@mine"))) == [Code.LINE_FULL]
    assert run(("HGET", keys.passes(card.sku), f"{card.sale_id}:@mine")) == [None]


def test_a_pass_and_an_email_are_both_spent(card: SaleCard) -> None:
    """The control is the fifth: with both of its own it is let in."""
    assert codes(press(card, ("ann", "@mine"), pass_id="pass")) == [Code.ADMITTED]
    assert codes(press(card, ("bob", "@mine"), pass_id="other")) == [Code.EMAIL_USED]
    assert codes(press(card, ("bob", "@other"), pass_id="pass")) == [Code.PASS_SPENT]
    assert run(("HLEN", keys.passes(card.sku))) == [2]
    assert codes(press(card, ("bob", "@other"), pass_id="other")) == [Code.ADMITTED]


def test_an_email_counts_in_one_sale_only(card: SaleCard) -> None:
    press(card, ("ann", "@mine"))
    assert run(("HKEYS", keys.passes(card.sku))) == [[f"{card.sale_id}:@mine"]]


@pytest.mark.parametrize(
    ("part", "presses", "pass_id"),
    [
        ("if let_in and let_in ~= id then code = 20 end", [("ann", "@mine"), ("bob", "@mine")], ""),
        ("elseif pass == '@' then code = 19", [("ann", ""), ("bob", "")], NO_EMAIL),
        ("spent_now[entries[i]], to_passes[m + 1], to_passes[m + 2] = id, entries[i], id",
         [("ann", "@mine"), ("bob", "@mine")], ""),
    ],
)  # fmt: skip
def test_without_the_guard_everybody_is_let_in(
    part: str, presses: list[tuple[str, str]], pass_id: str, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of all above: each guard is switched off in the script, and what it refuses is let in."""
    assert len(set(codes(press(card, *presses, pass_id=pass_id))) - {Code.ADMITTED}) == 1
    guard = Script(says="the guard", script="admit", part=part, other="elseif false then" if "elseif" in part else "")
    guard.take_away(monkeypatch.setattr)
    others = [(f"{buyer} again", entry and f"{entry} again") for buyer, entry in presses]
    if pass_id:  # what stands for nothing shown is spent like a pass then: one gets in
        assert codes(press(card, others[0], pass_id=pass_id)) == [Code.ADMITTED]
    else:
        assert codes(press(card, *others)) == [Code.ADMITTED] * 2
