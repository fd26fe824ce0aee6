"""A list of verified e-mails, and a presale for those on it or with a code, over HTTP. Uses a real web process; mails
are read in the queue.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test.utils import override_settings
from django.utils import timezone
from post_office.models import Email

from inventory.redis import keys
from shop.access import codes, emails, lists
from shop.models import AccessCode, ListedEmail, Sale
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import JSON, Answer, Buyer, Caller
from tests.support.road import run
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
CODE = re.compile(r"^[0-9A-Z]{4}-[0-9A-Z]{4}$", re.MULTILINE)
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
IN_AN_HOUR = timedelta(hours=1)


@pytest.fixture
def make(web: Caller, shown_sale: MakeSale) -> MakeSale:
    """Return a function that makes a sale with a list, and waits until the web process knows."""

    def make_guarded(
        addresses: Sequence[str] = (), *, public_in: timedelta | None = None, coded: bool = False, **terms: object
    ) -> SaleCard:
        cache.delete_pattern("mail*")  # type: ignore[attr-defined]
        card = shown_sale(**{"units": 100, "limit": 5, **terms})
        public_at = None if public_in is None else timezone.now() + public_in
        columns = {"public_at": public_at, "codes_required": coded}
        Sale.objects.filter(pk=card.sale_id).update(email_mode="once" if addresses else "never", **columns)
        if addresses:
            lists.put_list(card.sale_id, map(emails.normalise, addresses), replaces=True)
        asked = [*(["code"] if coded else []), *(["email", "list"] if addresses else [])]
        wait_until_asked(web, card, *asked)
        return catalogue.find_sale(card.slug)

    return make_guarded


def wait_until_asked(web: Caller, card: SaleCard, *asked: str) -> None:
    wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").json()["requires"] == [*asked])


def new_address() -> str:
    return f"ann-{secrets.token_hex(6)}@example.com"


def call(web: Caller, card: SaleCard, path: str, buyer: Buyer, body: object) -> Answer:
    headers = {**JSON, **buyer.headers}
    return web.call("POST", f"/api/v1/sales/{card.slug}/{path}", body=json.dumps(body), headers=headers)


def last_mail(address: str) -> str:
    last = Email.objects.filter(to=address).order_by("pk").last()
    assert last is not None
    return f"{last.subject}\n{last.message}"


def verify(web: Caller, card: SaleCard, buyer: Buyer, address: str) -> str:
    """Return the proof of a buyer, by the mail that they got."""
    assert call(web, card, "emails", buyer, {"address": address}).status == 202
    found = CODE.search(last_mail(address))
    assert found
    given = call(web, card, "emails/proofs", buyer, {"address": address, "code": found[0]})
    assert given.status == 201, given
    proof: str = given.json()["proof"]
    return proof


def press(web: Caller, card: SaleCard, buyer: Buyer, proof: str = "", *, code: str = "") -> Answer:
    headers = {**JSON, **buyer.headers, **({"Fairdrop-Email": proof} if proof else {})}
    body = json.dumps({"quantity": 1, **({"code": code} if code else {})})
    return web.call("POST", f"/api/v1/sales/{card.slug}/requests", body=body, headers=headers)


def assert_refused(answer: Answer, *, code: str = "email_required", says: str = "was not on this sale's list") -> None:
    told = answer.json()
    assert (answer.status, told["code"]) == (403, code), answer
    assert says in told["detail"]


def test_only_an_address_on_the_list_gets_a_code_and_the_answer_is_the_same(web: Caller, make: MakeSale) -> None:
    """Who asks learns nothing: only the mail says that the address is not on the list."""
    listed, other, ann, bob = new_address(), new_address(), web.new_buyer(), web.new_buyer()
    card = make([f"  {listed.upper()} "])
    found = [call(web, card, "emails", ann, {"address": each}) for each in (listed, other)]
    assert {(each.status, each.body) for each in found} == {(202, found[0].body)}
    assert CODE.search(last_mail(listed))
    assert not CODE.search(last_mail(other))
    assert "is not on the list of this drop" in last_mail(other)
    assert press(web, card, ann, verify(web, card, ann, listed)).status == 202
    # The control is a code that was made up nevertheless: a wrong one for who cannot read the mails, and of no use.
    made_up = emails.code_for(emails.normalise(other), card, buyer=bob.name)
    wrong = call(web, card, "emails/proofs", bob, {"address": other, "code": "WRONG"})
    assert_refused(wrong, says="not the code")
    assert_refused(call(web, card, "emails/proofs", bob, {"address": other, "code": made_up}))
    assert wrong.json() == call(web, card, "emails/proofs", bob, {"address": listed, "code": "WRONG"}).json()


def test_a_proof_of_an_address_that_is_not_listed_lets_nobody_in(web: Caller, make: MakeSale) -> None:
    """The control is a proof that names the list."""
    card, ann = make([new_address()]), web.new_buyer()
    proofs = [emails.make_proof("ann@example.com", card, buyer=ann.name, is_listed=each).text for each in (False, True)]
    assert_refused(press(web, card, ann, proofs[0]))
    end, entry, mark, signature = proofs[1].split(".")
    for forged in (f"{end}.{entry}.{mark}.{proofs[0][-22:]}", f"{end}.{entry}.AAAAAA.{signature}"):
        assert_refused(press(web, card, ann, forged), says="asks for a verified e-mail")
    assert run(("ZCARD", keys.line(card.sku))) == [0]
    assert press(web, card, ann, proofs[1]).status == 202


def test_a_list_that_was_replaced_ends_what_was_proved_and_one_that_grew_does_not(web: Caller, make: MakeSale) -> None:
    first, second, ann, bob = new_address(), new_address(), web.new_buyer(), web.new_buyer()
    card = make([first])
    proof = verify(web, card, ann, first)
    before = Sale.objects.get(pk=card.sale_id).email_list
    assert lists.put_list(card.sale_id, [second], replaces=False) == 2
    assert Sale.objects.get(pk=card.sale_id).email_list == before
    assert press(web, card, bob, verify(web, card, bob, second)).status == 202
    assert lists.put_list(card.sale_id, [second], replaces=True) == 1

    def refuses_the_first_list() -> bool:
        other = web.new_buyer()
        proved = emails.make_proof(new_address(), card, buyer=other.name, is_listed=True)
        return press(web, card, other, proved.text).status == 403

    wait_until(refuses_the_first_list)
    assert_refused(press(web, card, ann, proof))


def test_an_address_on_the_list_outlives_a_rotation_of_keys_and_is_counted_once(web: Caller, make: MakeSale) -> None:
    from django.conf import settings

    address = new_address()
    card = make([address])
    assert not ListedEmail.objects.filter(sale_id=card.sale_id, digest__contains=address[:8]).exists()
    with override_settings(TOKEN_KEYS=["new", *settings.TOKEN_KEYS]):
        assert lists.is_listed(address, card)
        assert lists.put_list(card.sale_id, [address, address], replaces=False) == 1
    with override_settings(TOKEN_KEYS=["another"]):
        assert not lists.is_listed(address, card)


def test_a_presale_is_for_the_listed_and_later_for_everybody(web: Caller, make: MakeSale) -> None:
    """The control is the same proof and the same press after that moment."""
    listed, other, ann, bob = new_address(), new_address(), web.new_buyer(), web.new_buyer()
    card = make([listed], public_in=IN_AN_HOUR)
    of_bob = verify(web, card, bob, other)
    assert "is not on the list of those who may buy first" in last_mail(other)
    shown = web.get(f"/api/v1/sales/{card.slug}").json()
    assert (shown["state"], shown["public_at"]) == ("open", card.public_at and card.public_at.isoformat())
    assert_refused(press(web, card, bob, of_bob))
    assert press(web, card, ann, verify(web, card, ann, listed)).status == 202
    body, headers = "quantity=1&idempotency_key=first-press", {**FORM, "Cookie": f"buyer={bob.token}; email={of_bob}"}
    page = web.call("POST", f"/sales/{card.slug}/", body=body, headers=headers)
    assert (page.status, b"Your e-mail address is not on the list" in page.body) == (403, True)
    Sale.objects.filter(pk=card.sale_id).update(public_at=timezone.now())
    wait_until_asked(web, card, "email")
    assert press(web, card, bob, of_bob).status == 202
    assert_refused(press(web, card, web.new_buyer()), says="asks for a verified e-mail")


def test_a_presale_with_codes_uses_none_once_it_is_everybodys(web: Caller, make: MakeSale) -> None:
    card = make(public_in=IN_AN_HOUR, coded=True)
    (code,) = codes.make_codes(card.sale_id, number=1, uses=5, counts_units=False, batch="of a test")
    assert_refused(press(web, card, web.new_buyer()), code="code_required", says="asks for an access code")
    assert press(web, card, web.new_buyer(), code=code).status == 202
    Sale.objects.filter(pk=card.sale_id).update(public_at=timezone.now())
    wait_until_asked(web, card)
    assert [press(web, card, web.new_buyer(), code=each).status for each in ("", code, "WRONG")] == [202] * 3
    headers = {**FORM, "Cookie": f"buyer={web.new_buyer().token}"}
    body = f"quantity=1&idempotency_key=first-press&code={code}"
    assert web.call("POST", f"/sales/{card.slug}/", body=body, headers=headers).status == 303
    assert list(AccessCode.objects.filter(sale_id=card.sale_id).values_list("left", flat=True)) == [4]


def test_an_address_that_is_not_listed_uses_no_code(web: Caller, make: MakeSale) -> None:
    listed, ann, bob = new_address(), web.new_buyer(), web.new_buyer()
    card = make([listed], public_in=IN_AN_HOUR, coded=True)
    (code,) = codes.make_codes(card.sale_id, number=1, uses=1, counts_units=False, batch="of a test")
    assert_refused(press(web, card, bob, verify(web, card, bob, new_address()), code=code))
    of_ann = verify(web, card, ann, listed)
    assert_refused(press(web, card, ann, of_ann), code="code_required", says="asks for an access code")
    assert press(web, card, ann, of_ann, code=code).status == 202


def test_the_page_says_whose_opening_is_when(web: Caller, make: MakeSale) -> None:
    card = make([new_address()], public_in=IN_AN_HOUR, opens_in_seconds=900)
    assert card.public_at
    opens, public = (int(each.timestamp() * 1000) for each in (card.opens_at, card.public_at))

    def page() -> str:
        return web.get(f"/sales/{card.slug}/").body.decode()

    wait_until(lambda: f'data-until="{public}"' in page())
    shown = page()
    assert f'data-until="{opens}"' in shown
    assert "Opens for those on the list in" in shown
    Sale.objects.filter(pk=card.sale_id).update(opens_at=timezone.now() - timedelta(seconds=5))
    wait_until(lambda: 'data-state="open"' in page())
    assert f'data-until="{public}"' in page()
    Sale.objects.filter(pk=card.sale_id).update(public_at=timezone.now() + timedelta(seconds=0.5))
    wait_until(lambda: "Opens for everybody in" not in page())
    assert "Only addresses that the shop has listed" not in page()
