"""A signature holds for one text and one purpose, under any current key. Forged and damaged ones are refused.
Needs no server.
"""

from __future__ import annotations

import hmac
import string
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.signing import BLOCK_BYTES, MAC_BYTES, MAC_LENGTH, Signer, mac_text

ALPHABET = string.ascii_letters + string.digits + "-_"
OLD_KEY, NEW_KEY = "old-" * 10, "new-" * 10
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


def signer(*keys: str, purpose: str = "buyer") -> Signer:
    return Signer(keys or (NEW_KEY,), purpose=purpose)


@given(key=st.binary(min_size=1, max_size=2 * BLOCK_BYTES), text=TEXTS)
def test_it_is_the_standards_mac_whatever_the_length_of_the_key(key: bytes, text: str) -> None:
    standard = hmac.digest(key, text.encode(), "sha256")[:MAC_BYTES]
    assert mac_text(key, text) == urlsafe_b64encode(standard).rstrip(b"=").decode()


@given(text=TEXTS)
def test_what_was_signed_is_verified(text: str) -> None:
    signature = signer().sign(text)
    assert len(signature) == MAC_LENGTH
    assert set(signature) <= set(ALPHABET)
    assert signer().verify(text, signature)


@given(text=TEXTS, other=TEXTS)
def test_a_signature_holds_for_its_own_text_only(text: str, other: str) -> None:
    assert signer().verify(other, signer().sign(text)) is (text == other)


@given(text=TEXTS, at=st.integers(0, MAC_LENGTH - 1), letter=st.sampled_from(ALPHABET))
def test_a_signature_with_one_changed_letter_is_refused(text: str, at: int, letter: str) -> None:
    signature = signer().sign(text)
    damaged = signature[:at] + letter + signature[at + 1 :]
    assert signer().verify(text, damaged) is (damaged == signature)


@pytest.mark.parametrize("signature", ["", "x", "ü" * MAC_LENGTH, "\x00" * MAC_LENGTH, "A" * MAC_LENGTH, "\ud800"])
def test_anything_else_is_refused_without_an_error(signature: str) -> None:
    assert signer().verify("text", signature) is False


def test_a_truncated_signature_is_refused_at_every_length() -> None:
    signature = signer().sign("text")
    assert [cut for cut in range(MAC_LENGTH) if signer().verify("text", signature[:cut])] == []


def test_the_first_key_signs() -> None:
    assert signer(NEW_KEY, OLD_KEY).sign("text") == signer(NEW_KEY).sign("text")
    assert signer(NEW_KEY, OLD_KEY).sign("text") != signer(OLD_KEY).sign("text")


def test_a_key_that_was_rotated_out_of_first_place_still_verifies() -> None:
    assert signer(NEW_KEY, OLD_KEY).verify("text", signer(OLD_KEY).sign("text"))


def test_a_key_that_was_taken_away_verifies_nothing() -> None:
    assert not signer(NEW_KEY).verify("text", signer(OLD_KEY).sign("text"))


def test_purposes_do_not_mix() -> None:
    assert not signer(purpose="ticket").verify("text", signer(purpose="buyer").sign("text"))


def test_a_purpose_cannot_be_moved_into_the_text() -> None:
    assert signer(purpose="a").sign("b:text") != signer(purpose="a:b").sign("text")


def test_a_signer_without_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        Signer([], purpose="buyer")
