"""How an address is counted, what a proof is bound to, and how long codes are good. Needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from django.test.utils import override_settings
from hypothesis import given
from hypothesis import strategies as st

from inventory.exceptions import InvalidRequest
from inventory.line.admission import NO_EMAIL, NO_PASS
from inventory.signing import signer_for
from shop.access import emails
from shop.access.emails import CODE_SECONDS, normalise
from shop.access.passes import NOT_ASKED, AccessCheck
from shop.sales.catalogue import SaleCard
from tests.unit.shop.test_passes import ANN, BOB
from tests.unit.shop.test_passes import CARD as ANY_CARD

CARD = replace(ANY_CARD, pass_mode="never", email_mode="once")
OTHER = replace(CARD, sale_id=2, slug="lamp-again", request_key="other")
ADDRESS = "ann@example.com"


@pytest.fixture(autouse=True)
def forget_keys() -> Iterator[None]:
    """Keep no signer of other keys."""
    yield
    signer_for.cache_clear()


@pytest.mark.parametrize(
    ("written", "counted"),
    [
        ("ann@example.com", "ann@example.com"),
        ("  Ann@Example.COM ", "ann@example.com"),
        ("ann+drop@example.com", "ann@example.com"),
        ("ann+a+b@example.com", "ann@example.com"),
        ("+ann@example.com", "+ann@example.com"),
        ("a.n.n@example.com", "a.n.n@example.com"),
        ("a.n.n+x@gmail.com", "ann@gmail.com"),
        ("A.nn@GoogleMail.com", "ann@gmail.com"),
        ("ann@bücher.example", "ann@xn--bcher-kva.example"),
        ("ann@xn--bcher-kva.example", "ann@xn--bcher-kva.example"),
    ],
)
def test_one_mailbox_is_counted_once(written: str, counted: str) -> None:
    assert normalise(written) == counted
    assert normalise(counted) == counted


def test_two_mailboxes_are_counted_twice() -> None:
    """The control of the rules above: what may well be another's is another one."""
    written = ["ann@example.com", "a.nn@example.com", "ann1@example.com", "ann@example.org", "ann-x@example.com"]
    assert len({normalise(each) for each in written}) == len(written)


NO_ADDRESSES = ["", "ann", "@example.com", "ann@", "a@b@c", "ann@exam ple.com", "ann@ex\nample.com"]
# Mailed as ann@gmail.com each, or wherever a number leads.
OTHER_WRITINGS = ['"ann"@gmail.com', '"ann+1"@gmail.com', '"a\\nn"@gmail.com', "ann@[127.0.0.1]"]


@pytest.mark.parametrize("text", [*NO_ADDRESSES, *OTHER_WRITINGS])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        normalise(text)


@given(st.text(max_size=300) | st.builds("{}@{}".format, st.text(max_size=80), st.text(max_size=300)))
def test_nothing_that_is_typed_breaks_it(text: str) -> None:
    try:
        once = normalise(text)
    except InvalidRequest:
        return
    assert normalise(once) == once


def proof(card: SaleCard = CARD, buyer: str = ANN) -> str:
    return emails.make_proof(ADDRESS, card, buyer=buyer).text


def test_a_proof_is_good_for_its_buyer_and_sale() -> None:
    for card, buyer in product((CARD, OTHER), (ANN, BOB)):
        found = emails.check(proof(), card, buyer=buyer, sent=NOT_ASKED)
        is_own = (card, buyer) == (CARD, ANN)
        assert (found.pass_id, found.refusal is None, bool(found.entry)) == ("" if is_own else NO_EMAIL, is_own, is_own)


def test_a_proof_names_no_address_and_stands_for_it_in_one_sale() -> None:
    entries = {
        emails.check(proof(card, buyer), card, buyer=buyer, sent=NOT_ASKED).entry
        for card, buyer in product((CARD, OTHER), (ANN, BOB))
    }
    assert len(entries) == 2
    assert ADDRESS not in proof()


def test_a_proof_keeps_what_the_pass_is_worth() -> None:
    mine, none = AccessCheck("mine"), AccessCheck(NO_PASS)
    assert emails.check(proof(), CARD, buyer=ANN, sent=mine).pass_id == "mine"
    assert emails.check(proof(), CARD, buyer=ANN, sent=none) is none
    assert emails.check("", replace(CARD, email_mode="never"), buyer=ANN, sent=mine) is mine
    assert emails.check(proof(), replace(CARD, email_mode="verified"), buyer=ANN, sent=mine) is mine


def test_a_proof_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    text, made = proof(), emails.clocks.seconds()
    monkeypatch.setattr(emails.clocks, "seconds", lambda: made + emails.PROOF_SECONDS - 2)
    assert emails.check(text, CARD, buyer=ANN, sent=NOT_ASKED).refusal is None
    monkeypatch.setattr(emails.clocks, "seconds", lambda: made + emails.PROOF_SECONDS + 2)
    assert emails.check(text, CARD, buyer=ANN, sent=NOT_ASKED).pass_id == NO_EMAIL


@given(st.text(max_size=90))
def test_what_nobody_signed_is_no_proof(text: str) -> None:
    assert emails.check(text, CARD, buyer=ANN, sent=NOT_ASKED).pass_id == NO_EMAIL


def test_proofs_and_codes_outlive_a_rotation_and_an_entry_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emails.clocks, "seconds", lambda: 1_900_000_000.0)
    with override_settings(TOKEN_KEYS=["old"]):
        signer_for.cache_clear()
        before, code = proof(), emails.code_for(ADDRESS, CARD, buyer=ANN).replace("-", "")
        entry = emails.check(before, CARD, buyer=ANN, sent=NOT_ASKED).entry
    with override_settings(TOKEN_KEYS=["new", "old"]):
        signer_for.cache_clear()
        assert emails.check(before, CARD, buyer=ANN, sent=NOT_ASKED).entry == entry
        assert code in emails._good_codes(ADDRESS, CARD, buyer=ANN)
        assert emails.check(proof(), CARD, buyer=ANN, sent=NOT_ASKED).entry == entry
    with override_settings(TOKEN_KEYS=["new"]):
        signer_for.cache_clear()
        assert emails.check(before, CARD, buyer=ANN, sent=NOT_ASKED).pass_id == NO_EMAIL


def test_a_code_is_good_for_its_period_and_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_900_000_000 // CODE_SECONDS * CODE_SECONDS
    monkeypatch.setattr(emails.clocks, "seconds", lambda: float(now))
    code = emails.code_for(ADDRESS, CARD, buyer=ANN).replace("-", "")
    for later, is_good in ((0, True), (2 * CODE_SECONDS - 1, True), (2 * CODE_SECONDS, False)):
        monkeypatch.setattr(emails.clocks, "seconds", lambda later=later: float(now + later))
        assert (code in emails._good_codes(ADDRESS, CARD, buyer=ANN)) == is_good
    monkeypatch.setattr(emails.clocks, "seconds", lambda: float(now))
    for card, buyer, address in ((OTHER, ANN, ADDRESS), (CARD, BOB, ADDRESS), (CARD, ANN, "bob@example.com")):
        assert code not in emails._good_codes(address, card, buyer=buyer)
