"""A verified e-mail over HTTP: a code goes to the address, its buyer sends it back and holds a proof for one sale, and
where the sale says so each address lets in one request. Uses a real web process; mails are read in the queue.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Callable

import pytest
from django.core.cache import cache
from post_office.models import Email

from inventory.redis import keys
from shop.access import emails
from shop.models import Sale
from shop.orders import email_codes
from shop.orders.personal_data import export_buyer, forget_buyer
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from tests.races.crowd import at_once
from tests.support.http_calls import JSON, Answer, Buyer, Caller
from tests.support.road import run
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
CODE = re.compile(r"^[0-9A-Z]{4}-[0-9A-Z]{4}$", re.MULTILINE)
PRESSES = 60


@pytest.fixture
def make(web: Caller, shown_sale: MakeSale) -> MakeSale:
    """Return a function that makes a sale that asks for an e-mail, and waits until the web process knows."""

    def make_guarded(mode: str = "once", **terms: object) -> SaleCard:
        card = shown_sale(**{"units": 100, "limit": 5, **terms})
        Sale.objects.filter(pk=card.sale_id).update(email_mode=mode)
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").json()["requires"] == ["email"])
        return catalogue.find_sale(card.slug)

    return make_guarded


def new_address(tag: str = "") -> str:
    return f"ann-{secrets.token_hex(6)}{tag}@example.com"


def call(web: Caller, card: SaleCard, path: str, buyer: Buyer, body: object) -> Answer:
    headers = {**JSON, **buyer.headers}
    return web.call("POST", f"/api/v1/sales/{card.slug}/{path}", body=json.dumps(body), headers=headers)


def mailed(address: str) -> list[str]:
    """Return the codes that were mailed to an address, the last one last."""
    mails = Email.objects.filter(to=address).order_by("pk")
    return [found[0] for found in (CODE.search(each.message) for each in mails) if found]


def verify(web: Caller, card: SaleCard, buyer: Buyer, address: str) -> str:
    """Return the proof of a buyer, by the mail that they got."""
    assert call(web, card, "emails", buyer, {"address": address}).status == 202
    given = call(web, card, "emails/proofs", buyer, {"address": address, "code": mailed(address)[-1]})
    assert given.status == 201, given
    proof: str = given.json()["proof"]
    return proof


def press(web: Caller, card: SaleCard, buyer: Buyer, proof: str = "", *, key: str = "") -> Answer:
    headers = {**JSON, **buyer.headers, **({"Idempotency-Key": key} if key else {})}
    if proof:
        headers["Fairdrop-Email"] = proof
    return web.call("POST", f"/api/v1/sales/{card.slug}/requests", body='{"quantity": 1}', headers=headers)


def assert_refused(answer: Answer) -> None:
    assert (answer.status, answer.json()["code"]) == (403, "email_required"), answer


@pytest.fixture(autouse=True)
def forget_counts(shop_database: None) -> None:
    """Let each test begin without what another one counted of this machine's network."""
    cache.delete_pattern("mail*")  # type: ignore[attr-defined]


def test_who_reads_the_mail_is_let_in(web: Caller, make: MakeSale) -> None:
    card, ann, address = make("verified"), web.new_buyer(), new_address()
    assert_refused(press(web, card, ann))
    proof = verify(web, card, ann, address)
    placed = press(web, card, ann, proof)
    assert placed.status == 202
    for again in (press(web, card, ann), press(web, card, ann, "rubbish"), press(web, card, ann, proof)):
        assert (again.status, again.json()["seq"]) == (200, placed.json()["seq"])
    assert press(web, card, ann, proof, key="another").status == 202  # this sale counts no addresses


def test_a_proof_is_good_for_its_buyer_and_sale_alone(web: Caller, make: MakeSale) -> None:
    card, other, ann, bob = make(), make(), web.new_buyer(), web.new_buyer()
    proof = verify(web, card, ann, new_address())
    assert_refused(press(web, card, bob, proof))
    assert_refused(press(web, other, ann, proof))
    for bad in (proof[:-1], f"9{proof}", proof.upper(), "x" * 500, "é", "1.a.b"):
        assert_refused(press(web, card, ann, bad))
    assert run(("ZCARD", keys.line(card.sku)), ("ZCARD", keys.line(other.sku))) == [0, 0]
    assert press(web, card, ann, proof).status == 202


@pytest.mark.parametrize("mode", ["once", "verified"])
def test_an_address_lets_in_one_request_however_it_is_written(mode: str, web: Caller, make: MakeSale) -> None:
    """The control is a sale that does not count addresses."""
    card, name = make(mode), secrets.token_hex(6)
    written = [f"{name}@example.com", f"{name.upper()}@EXAMPLE.com", f"{name}+drop@example.com"]
    found = []
    for address in written:
        buyer = web.new_buyer()
        found.append(press(web, card, buyer, verify(web, card, buyer, address)))
    assert [each.status for each in found] == [202] + [409 if mode == "once" else 202] * 2
    assert {each.json().get("code") for each in found[1:]} == {"limit_reached" if mode == "once" else None}
    kept = run(("HGETALL", keys.passes(card.sku)), ("HGETALL", keys.records(card.sku)))
    assert name not in str(kept).lower()


def test_one_address_pressed_at_once_by_many_lets_one_in(web: Caller, make: MakeSale) -> None:
    card = make()
    buyers = [web.new_buyer() for _ in range(PRESSES)]
    address = emails.normalise(new_address())
    proofs = [emails.make_proof(address, card, buyer=each.name).text for each in buyers]
    found = Counter(at_once(lambda number: press(web, card, buyers[number], proofs[number]).status, PRESSES))
    assert found == {202: 1, 409: PRESSES - 1}


def test_a_code_is_its_buyers_alone_and_guesses_are_bounded(web: Caller, make: MakeSale) -> None:
    card, ann, bob, address = make(), web.new_buyer(), web.new_buyer(), new_address()
    assert call(web, card, "emails", ann, {"address": address}).status == 202
    sent = {"address": address, "code": mailed(address)[-1]}
    assert_refused(call(web, card, "emails/proofs", bob, sent))
    assert_refused(call(web, card, "emails/proofs", ann, {**sent, "address": new_address()}))
    guesses = [{**sent, "code": f"GUESS{number:03}"} for number in range(emails.MAX_GUESSES_OF_BUYER + 1)]
    found = [call(web, card, "emails/proofs", ann, each).status for each in guesses]
    assert (found[0], found[-1]) == (403, 429)
    assert call(web, card, "emails/proofs", ann, sent).status == 429
    cache.delete_pattern("mailcodes:*")  # type: ignore[attr-defined]
    written = sent["code"].replace("-", " ").lower().replace("0", "o").replace("1", "l")
    assert call(web, card, "emails/proofs", ann, {**sent, "code": written}).status == 201


def test_guesses_of_one_network_are_bounded(web: Caller, make: MakeSale) -> None:
    card, found = make(), Counter[int]()
    for number in range(emails.MAX_GUESSES + 2):
        typed = {"address": new_address(), "code": f"GUESS{number}"}
        found[call(web, card, "emails/proofs", web.new_buyer(), typed).status] += 1
    assert found == {403: emails.MAX_GUESSES, 429: 2}


def test_mails_to_one_address_are_bounded_and_the_answer_is_the_same(web: Caller, make: MakeSale) -> None:
    """Here a network may send it a few; from everywhere a few more, and of that bound nobody is told."""
    card, ann, address = make(), web.new_buyer(), new_address()
    found = [call(web, card, "emails", web.new_buyer(), {"address": address}) for _ in range(4)]
    assert [each.status for each in found] == [202, 202, 202, 429]
    assert int(found[-1].headers["retry-after"]) == 900
    assert len(mailed(address)) == email_codes.MAX_OF_NETWORK_TO_ADDRESS
    assert call(web, card, "emails", ann, {"address": new_address()}).json() == found[0].json()
    other = new_address()
    for number in range(email_codes.MAX_TO_ADDRESS + 2):
        email_codes.send_code(card, address=other, buyer="b", network=f"net {number}", language="en", root="http://x")
    assert len(mailed(other)) == email_codes.MAX_TO_ADDRESS


def test_mails_of_one_network_are_bounded(web: Caller, make: MakeSale) -> None:
    card, ann = make(), web.new_buyer()
    cache.set(f"mailed:{card.sale_id}:127.0.0", email_codes.MAX_OF_NETWORK, timeout=900)
    address = new_address()
    assert call(web, card, "emails", ann, {"address": address}).status == 429
    assert mailed(address) == []


BAD = (
    {}, {"address": ""}, {"address": "ann"}, {"address": "ann@"}, {"address": "a b@example.com"}, {"address": 1},
    {"address": "x" * 250 + "@example.com"}, {"address": "ann@example.com\nBcc: eve@example.com"},
    {"address": "ann@example.com", "more": "x"}, {"address": "\u0000@example.com"},
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_what_is_no_address_is_a_bad_request_and_sends_nothing(number: int, web: Caller, make: MakeSale) -> None:
    before = Email.objects.count()
    assert call(web, make(), "emails", web.new_buyer(), BAD[number]).status == 400
    assert Email.objects.count() == before


def test_a_sale_that_asks_for_none_sends_none(web: Caller, shown_sale: MakeSale) -> None:
    card, ann, address = shown_sale(units=3), web.new_buyer(), new_address()
    assert call(web, card, "emails", ann, {"address": address}).status == 400
    assert (
        web.call("POST", f"/api/v1/sales/{card.slug}/emails", body='{"address": "a@b.ch"}', headers=JSON).status == 401
    )
    assert mailed(address) == []


def test_a_buyers_mails_are_exported_and_forgotten(web: Caller, make: MakeSale) -> None:
    card, ann, bob, address, others = make(), web.new_buyer(), web.new_buyer(), new_address(), new_address()
    verify(web, card, ann, address)
    verify(web, card, bob, others)
    assert [each["to"] for each in export_buyer(ann.name)["codes_by_mail"]] == [[address]]
    forget_buyer(ann.name, actor="ada", reason="asked for it")
    assert export_buyer(ann.name)["codes_by_mail"] == []
    assert (len(mailed(address)), len(mailed(others))) == (0, 1)
