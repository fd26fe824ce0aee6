"""The tickets that the gate gives hold by the key that it publishes: alone, many at once, asked for again, restored.
A real web process; a stranger's program reads them.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from inventory.redis import keys
from loadtest.verify.verify_sale import Verifier
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from shop.tickets.signing import holder_of
from tests.support import road
from tests.support.http_calls import JSON, Caller

MakeSale = Callable[..., SaleCard]
SKETCH = "eyJ2IjoyfQ"


def part_of(ticket: str, part: int) -> dict[str, Any]:
    """Return one of the two parts of a ticket."""
    found: dict[str, Any] = json.loads(urlsafe_b64decode(ticket.split(".")[part] + "=="))
    return found


def show(web: Caller, card: SaleCard, *tickets: str) -> dict[str, list[str]]:
    """Return what a stranger finds wrong with tickets, by the keys that the shop publishes."""
    verifier = Verifier(lambda path: web.get(path).body, card.slug)
    verifier.read_keys()
    for ticket in tickets:
        verifier.show(ticket)
    return verifier.replay.faults


def line_of(card: SaleCard) -> list[Any]:
    """Return who is in line, and every record."""
    return road.run(("ZRANGE", keys.line(card.sku), 0, -1, "WITHSCORES"), ("HGETALL", keys.records(card.sku)))


def test_a_ticket_says_what_the_answer_says(web: Caller, shown_sale: MakeSale) -> None:
    card, ann = shown_sale(units=3, limit=2), web.new_buyer()
    answer = web.ask(card.slug, ann, quantity=2).json()
    assert part_of(answer["ticket"], 1) == {
        "v": 2, "sale": card.slug, "ordinal": 1, "seq": answer["seq"], "quantity": 2,
        "request": answer["request_id"], "holder": holder_of(card.request_id_key(), ann.name),
        "terms": card.terms_version,
    }  # fmt: skip
    assert show(web, card, answer["ticket"]) == {}
    again = web.ask(card.slug, ann, quantity=2)
    assert (again.status, part_of(again.json()["ticket"], 1)) == (200, part_of(answer["ticket"], 1))


def test_a_stranger_reads_outside_the_log_when_a_sale_ends(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=1)
    verifier = Verifier(lambda path: web.get(path).body, card.slug)
    verifier.finish(1)
    assert abs(verifier.replay.ends_at - card.closes_at.timestamp() * 1_000_000) <= 1_000_000


def test_many_at_once_have_one_signature_a_batch(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=200)
    buyers = [web.new_buyer() for _ in range(40)]
    with ThreadPoolExecutor(len(buyers)) as threads:
        answers = [each.json() for each in threads.map(lambda buyer: web.ask(card.slug, buyer), buyers)]
    tickets = [answer["ticket"] for answer in answers]
    assert show(web, card, *tickets) == {}
    assert sorted(part_of(ticket, 1)["ordinal"] for ticket in tickets) == [*range(1, 41)]
    batches = Counter((part_of(ticket, 2)["sig"], part_of(ticket, 2)["size"]) for ticket in tickets)
    assert all(count == size for (_, size), count in batches.items())


def test_one_on_standby_says_so(web: Caller, shown_sale: MakeSale) -> None:
    card, ann = shown_sale(units=1, line_capacity=0), web.new_buyer()
    web.ask(card.slug, web.new_buyer())
    for _ in range(2):
        ticket = web.ask(card.slug, ann, wish={"standby": True}).json()["ticket"]
        assert part_of(ticket, 1)["standby"] is True
        assert show(web, card, ticket) == {}


def test_a_lost_place_comes_back_by_its_ticket_and_is_told_on_the_same_one(web: Caller, shown_sale: MakeSale) -> None:
    card, ann, bob = shown_sale(units=3), web.new_buyer(), web.new_buyer()
    mine, his = web.ask(card.slug, ann).json(), web.ask(card.slug, bob).json()
    road.forget(card)
    priming.prime_sale(card.slug)
    restored = web.ask(card.slug, ann, wish={"ticket": mine["ticket"]})
    assert (restored.status, restored.json()["seq"]) == (202, mine["seq"])
    assert part_of(restored.json()["ticket"], 1) == part_of(mine["ticket"], 1)
    body = json.dumps({"ticket": his["ticket"]})
    told = web.call("POST", "/api/v1/tickets/restore", body=body, headers={**JSON, **bob.headers})
    assert (told.status, told.json()["position"]) == (202, 2)


@pytest.mark.parametrize(
    ("of", "status"),
    [("cut", 400), ("altered", 400), ("of nobody", 400), ("another's", 404), ("another sale's", 404),
     ("another quantity's", 422)],
)  # fmt: skip
def test_a_ticket_that_is_not_ones_own_is_refused_and_nothing_is_written(
    web: Caller, shown_sale: MakeSale, of: str, status: int
) -> None:
    card, other, ann, bob = shown_sale(units=3, limit=2), shown_sale(units=3), web.new_buyer(), web.new_buyer()
    own, his = web.ask(card.slug, ann).json()["ticket"], web.ask(card.slug, bob).json()["ticket"]
    ticket = {
        "cut": own[:-10], "altered": own.replace("fdt2.eyJ2IjoyL", "fdt2.eyJ2IjozL"), "of nobody": f"fdt2.{SKETCH}.",
        "another's": his, "another sale's": web.ask(other.slug, ann).json()["ticket"], "another quantity's": own,
    }[of]  # fmt: skip
    road.forget(card)
    priming.prime_sale(card.slug)
    before = line_of(card)
    quantity = 2 if of == "another quantity's" else 1
    answer = web.ask(card.slug, ann, quantity=quantity, wish={"ticket": ticket})
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    if status != 422 and of != "another sale's":
        body = json.dumps({"ticket": ticket})
        restored = web.call("POST", "/api/v1/tickets/restore", body=body, headers={**JSON, **ann.headers})
        assert restored.status == status
    assert line_of(card) == before
