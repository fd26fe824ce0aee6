"""Access codes over HTTP: one lets in what it is good for, however many press at once, and whatever is no good code is
refused in the same words and changes nothing. A Redis that was lost gives no use back. Uses a real web process.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line.priming import is_primed
from inventory.redis import keys
from shop.access import codes, emails
from shop.access.codes import count_up
from shop.access.passes import NOT_ASKED
from shop.access.waiting import begin_wait, give_pass
from shop.models import AccessCode, CodeUse, Sale
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.races.crowd import at_once
from tests.support.http_calls import JSON, Answer, Buyer, Caller
from tests.support.road import run
from tests.support.servers.faulty_caches import cache_away, cache_without_writes
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
PRESSES = 200


@pytest.fixture
def make(web: Caller, shown_sale: MakeSale) -> MakeSale:
    """Return a function that makes a sale that asks for a code, and waits until the web process knows."""

    def make_guarded(**terms: object) -> SaleCard:
        card = shown_sale(**{"units": 300, "limit": 5, **terms})
        Sale.objects.filter(pk=card.sale_id).update(codes_required=True)
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").json()["requires"] == ["code"])
        return catalogue.find_sale(card.slug)

    return make_guarded


def new_codes(card: SaleCard, number: int = 1, *, uses: int = 1, counts_units: bool = False) -> list[str]:
    return codes.make_codes(card.sale_id, number=number, uses=uses, counts_units=counts_units, batch="of a test")


def press(
    web: Caller, card: SaleCard, buyer: Buyer, code: object = None, *, quantity: int = 1, key: str = ""
) -> Answer:
    headers = {**JSON, **buyer.headers, **({"Idempotency-Key": key} if key else {})}
    body = json.dumps({"quantity": quantity, **({} if code is None else {"code": code})})
    return web.call("POST", f"/api/v1/sales/{card.slug}/requests", body=body, headers=headers)


def assert_refused(answer: Answer) -> None:
    assert (answer.status, answer.json()["code"]) == (403, "code_required"), answer


def left(card: SaleCard) -> list[int]:
    return list(AccessCode.objects.filter(sale_id=card.sale_id).order_by("pk").values_list("left", flat=True))


def forget_guesses(card: SaleCard) -> None:
    cache.delete(f"guesses:{card.sale_id}:127.0.0")


def test_a_code_for_one_request_lets_in_one(web: Caller, make: MakeSale) -> None:
    card, ann, bob = make(), web.new_buyer(), web.new_buyer()
    (code,) = new_codes(card)
    placed = press(web, card, ann, code)
    assert placed.status == 202
    for again in (press(web, card, ann, code), press(web, card, ann), press(web, card, ann, "WRONG")):
        assert (again.status, again.json()["seq"]) == (200, placed.json()["seq"])
    assert_refused(press(web, card, bob, code))
    assert_refused(press(web, card, ann, code, key="another"))
    assert left(card) == [0]


def test_a_code_for_some_requests_and_one_for_some_units(web: Caller, make: MakeSale) -> None:
    card = make()
    (three,), (five_units,) = new_codes(card, uses=3), new_codes(card, uses=5, counts_units=True)
    assert [press(web, card, web.new_buyer(), three, quantity=2).status for _ in range(4)] == [202] * 3 + [403]
    found = [press(web, card, web.new_buyer(), five_units, quantity=quantity).status for quantity in (3, 3, 2, 1)]
    assert found == [202, 403, 202, 403]
    assert left(card) == [0, 0]


def test_a_press_that_was_refused_may_not_ask_for_more_than_its_code_was_used_for(web: Caller, make: MakeSale) -> None:
    """Its key keeps the use; the controls: as many as before, and a code that counts requests."""
    card, ann, bob = make(), web.new_buyer(), web.new_buyer()
    (one_unit,), (one_request,) = new_codes(card, counts_units=True), new_codes(card)
    for buyer, code in ((ann, one_unit), (bob, one_request)):
        body = json.dumps({"quantity": 1, "code": code, "terms_version": 999_999})
        refused = web.call("POST", f"/api/v1/sales/{card.slug}/requests", body=body, headers={**JSON, **buyer.headers})
        assert refused.status == 400
    assert left(card) == [0, 0]
    assert_refused(press(web, card, ann, one_unit, quantity=2))
    assert press(web, card, ann, one_unit).status == 202
    assert press(web, card, ann, quantity=2).status == 422
    assert press(web, card, bob, one_request, quantity=2).status == 202


BAD = (None, "", "rubbish", "0" * 12, "x" * 40, "\u0000", "é" * 12, "' OR 1=1 --", "%s")


@pytest.mark.parametrize("number", range(len(BAD)))
def test_what_is_no_code_is_refused_in_the_same_words_and_changes_nothing(
    number: int, web: Caller, make: MakeSale
) -> None:
    """The control is a good one."""
    card, other, ann = make(), make(), web.new_buyer()
    (good,), (of_other,) = new_codes(card), new_codes(other)
    forget_guesses(card)
    answer = press(web, card, ann, BAD[number])
    assert_refused(answer)
    if BAD[number]:
        assert answer.json() == press(web, card, ann, of_other).json()
    page = web.call(
        "POST", f"/sales/{card.slug}/", body=f"quantity=1&idempotency_key=first-press&code={number}",
        headers={**FORM, "Cookie": f"buyer={ann.token}"},
    )  # fmt: skip
    assert (page.status, b"An access code is needed here" in page.body) == (403, True)
    assert (left(card), left(other)) == ([1], [1])
    assert run(("ZCARD", keys.line(card.sku)), ("HLEN", keys.records(card.sku))) == [0, 0]
    assert press(web, card, ann, good).status == 202


def statements(card: SaleCard, code: str, *, press: str) -> list[str]:
    """Return what the database is asked when a press shows a code, with values left out."""
    with CaptureQueriesContext(connection) as seen:
        codes.check(code, card, request_id=press, quantity=1, network="192.0.2", sent=NOT_ASKED)
    return [re.sub(r"'[^']*'|\b\d+\b", "?", query["sql"]) for query in seen]


def test_a_spent_code_takes_the_statements_of_one_that_was_never_made(
    shop_database: None, new_sku: Callable[[], str]
) -> None:
    """So the time of a refusal tells nobody that a code was good once. Controls: a good one, and what is no code."""
    card = make_sale(new_sku(), units=5)
    (code,) = new_codes(card)
    used = statements(card, code, press="first")
    assert left(card) == [0]
    spent, never_made, no_code = (statements(card, text, press="next") for text in (code, "0000-0000-0000", "rubbish"))
    assert spent == never_made
    assert len(no_code) < len(spent) < len(used)


@pytest.mark.parametrize("code", [1, ["x"], True, "x" * 41], ids=range(4))
def test_a_code_that_is_no_short_text_is_a_bad_request(code: object, web: Caller, make: MakeSale) -> None:
    assert press(web, make(), web.new_buyer(), code).status == 400


def test_a_code_is_read_as_people_write_it(web: Caller, make: MakeSale) -> None:
    card = make()
    (code,) = new_codes(card)
    written = code.replace("-", " ").lower().replace("0", "o").replace("1", "l")
    assert press(web, card, web.new_buyer(), f" {written} ").status == 202


def test_a_press_of_the_page_takes_its_code(web: Caller, make: MakeSale) -> None:
    card, ann = make(), web.new_buyer()
    (code,) = new_codes(card)
    body, headers = f"quantity=1&idempotency_key=first-press&code={code}", {**FORM, "Cookie": f"buyer={ann.token}"}
    assert [web.call("POST", f"/sales/{card.slug}/", body=body, headers=headers).status for _ in range(2)] == [303] * 2
    assert left(card) == [0]


def test_a_code_pressed_at_once_by_two_hundred_lets_one_in(web: Caller, make: MakeSale) -> None:
    card, buyers = make(), [web.new_buyer() for _ in range(PRESSES)]
    (code,) = new_codes(card)
    found = Counter(at_once(lambda number: press(web, card, buyers[number], code).status, PRESSES))
    assert found[202] == 1
    # Those who are too late are refused, by their code or as guesses, or asked to come again; nobody else is let in.
    assert found.keys() <= {202, 403, 429, 503}
    assert (left(card), CodeUse.objects.filter(code__sale_id=card.sale_id).count()) == ([0], 1)
    assert run(("ZCARD", keys.line(card.sku))) == [1]


def test_one_request_pressed_at_once_uses_its_code_once(web: Caller, make: MakeSale) -> None:
    card, ann = make(), web.new_buyer()
    (code,) = new_codes(card, uses=PRESSES)
    found = Counter(at_once(lambda _number: press(web, card, ann, code).status, 40))
    assert found[202] == 1
    assert found.keys() <= {200, 202, 503}
    assert left(card) == [PRESSES - 1]


def test_a_redis_that_was_lost_gives_no_use_back(web: Caller, make: MakeSale) -> None:
    card, ann = make(), web.new_buyer()
    (code,) = new_codes(card)
    assert press(web, card, ann, code).status == 202
    redis.run_commands(redis.connect(), [("UNLINK", *keys.all_of(card.sku))])
    # Each press would count as a guess, and of guesses so many are free.
    wait_until(lambda: is_primed(redis.connect(), card.sku), what="the sale is primed again")
    wait_until(lambda: press(web, card, web.new_buyer(), code).status == 403, what="the web process knows")
    assert press(web, card, ann, code, key="another").status == 403
    assert press(web, card, ann, code).status in (200, 202)  # its own request
    assert left(card) == [0]


@pytest.mark.usefixtures("shop_database")
@pytest.mark.parametrize("faulty", [cache_away, cache_without_writes, nullcontext])
def test_what_the_cache_cannot_count_is_refused(new_sku: Callable[[], str], faulty: Callable[[], Any]) -> None:
    """Who waited for a pass is let in all the same. The control is a cache that answers."""
    card = make_sale(new_sku(), units=1)
    wait = begin_wait(card, buyer="ann")
    refused = nullcontext() if faulty is nullcontext else pytest.raises(RedisUnavailable)
    with faulty():
        with refused:
            assert count_up(f"guesses:{card.sku}", seconds=60) == 1
        assert give_pass(wait, card, buyer="ann", network=card.sku)


def test_before_the_opening_nothing_is_counted(web: Caller, make: MakeSale) -> None:
    card = make(opens_in_seconds=900)
    (code,) = new_codes(card)
    assert press(web, card, web.new_buyer(), code).status == 425
    assert left(card) == [1]


def test_a_revoked_network_uses_no_code(web: Caller, make: MakeSale) -> None:
    """The control is the same press after the network may come again."""
    card = make()
    (code,) = new_codes(card)
    act = {"network": "127.0.0.1", "actor": "ada", "reason": "one script"}
    sale_control.revoke_network(card.slug, **act)
    wait_until(lambda: press(web, card, web.new_buyer(), "").json()["code"] == "network_revoked")
    assert press(web, card, web.new_buyer(), code).json()["code"] == "network_revoked"
    ann = web.new_buyer()
    body, headers = f"quantity=1&idempotency_key=first-press&code={code}", {**FORM, "Cookie": f"buyer={ann.token}"}
    assert web.call("POST", f"/sales/{card.slug}/", body=body, headers=headers).status == 403
    assert left(card) == [1]
    sale_control.restore_network(card.slug, **act)
    wait_until(lambda: press(web, card, ann, code).status == 202)
    assert left(card) == [0]


@pytest.mark.parametrize("by_form", [False, True])
def test_an_address_that_had_its_request_uses_no_code(by_form: bool, web: Caller, make: MakeSale) -> None:
    """The control is the same press with an address that had none."""
    card = make()
    Sale.objects.filter(pk=card.sale_id).update(email_mode="once")
    wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").json()["requires"] == ["code", "email"])
    (two,), ann, bob = new_codes(card, uses=2), web.new_buyer(), web.new_buyer()

    def press_with(buyer: Buyer, address: str) -> int:
        proof = emails.make_proof(address, card, buyer=buyer.name).text
        if by_form:
            headers = {**FORM, "Cookie": f"buyer={buyer.token}; email={proof}"}
            body = f"quantity=1&idempotency_key=first-press&code={two}"
            return web.call("POST", f"/sales/{card.slug}/", body=body, headers=headers).status
        headers = {**JSON, **buyer.headers, "Fairdrop-Email": proof}
        body = json.dumps({"quantity": 1, "code": two})
        return web.call("POST", f"/api/v1/sales/{card.slug}/requests", body=body, headers=headers).status

    placed, again = (303, 303) if by_form else (202, 200)
    assert (press_with(ann, "ann@example.com"), left(card)) == (placed, [1])
    assert (press_with(bob, "ann@example.com"), left(card)) == (409, [1])
    assert (press_with(ann, "ann@example.com"), left(card)) == (again, [1])
    assert (press_with(bob, "bob@example.com"), left(card)) == (placed, [0])


def test_guesses_of_one_network_are_bounded(web: Caller, make: MakeSale) -> None:
    card = make()
    (code,) = new_codes(card)
    found = Counter(
        press(web, card, web.new_buyer(), f"GUESS{number}").status for number in range(codes.MAX_GUESSES + 3)
    )
    assert found == {403: codes.MAX_GUESSES, 429: 3}
    limited = press(web, card, web.new_buyer(), code)
    assert (limited.status, int(limited.headers["retry-after"])) == (429, 600)
    forget_guesses(card)
    assert press(web, card, web.new_buyer(), code).status == 202


def test_nothing_is_kept_of_a_code_and_it_outlives_a_rotation(web: Caller, make: MakeSale) -> None:
    card = make()
    (code,) = new_codes(card)
    row = AccessCode.objects.get(sale_id=card.sale_id)
    plain = code.replace("-", "")
    assert all(plain not in str(value) for value in vars(row).values())
    with override_settings(TOKEN_KEYS=["new", "newer"]):
        assert row.digest not in codes._digests(card.sale_id, plain)
    with override_settings(TOKEN_KEYS=["new", *settings.TOKEN_KEYS]):
        assert row.digest in codes._digests(card.sale_id, plain)
