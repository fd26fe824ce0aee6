"""A retry has the id of its first try, a record survives Redis, a ticket proves a place. Forged ones are refused.
Needs no server.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.exceptions import InvalidRequest
from inventory.records import Record, Ticket, read_record, read_ticket, request_id, sale_id_of, sign_ticket
from inventory.signing import Signer
from inventory.states import State

SIGNER = Signer(["ticket-key-" * 4], purpose="ticket")
BUYER = "aBcDeFgHiJkLmNoPqRsT-_"
TICKET = Ticket(request_id="1f-" + "x" * 22, buyer=BUYER, quantity=2, seq=1_700_000_000_000_000)
ASKED = {"sale_id": 31, "request_key": b"key", "buyer": BUYER, "idempotency_key": "k1"}


@given(
    state=st.sampled_from(State),
    seq=st.integers(0, 2**53),
    quantity=st.integers(1, 10**6),
    sale_id=st.integers(1, 2**47),
    end=st.none() | st.integers(0, 2**50),
)
def test_a_record_reads_as_it_was_written(state: State, seq: int, quantity: int, sale_id: int, end: int | None) -> None:
    record = Record(state, seq, quantity, sale_id, BUYER, end)
    assert read_record(record.text()) == record


@pytest.mark.parametrize("text", ["", "q", "q|1|2", "z|1|2|3|buyer", "q|x|2|3|buyer", "q|1|2|3|buyer|soon"])
def test_a_damaged_record_is_an_error_not_a_guess(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        read_record(text)


def test_the_same_wish_has_the_same_id() -> None:
    assert request_id(**ASKED) == request_id(**ASKED)


@pytest.mark.parametrize(
    "other", [{"sale_id": 32}, {"request_key": b"other"}, {"buyer": BUYER[::-1]}, {"idempotency_key": "k2"}]
)
def test_another_wish_has_another_id(other: dict[str, object]) -> None:
    assert request_id(**(ASKED | other)) != request_id(**ASKED)


@given(sale_id=st.integers(1, 16**12 - 1))
def test_an_id_names_its_sale(sale_id: int) -> None:
    assert sale_id_of(request_id(**(ASKED | {"sale_id": sale_id}))) == sale_id


@pytest.mark.parametrize("head", ["", "0x1", "+1", " 1", "1_0", "g", "1F", "1" * 13, "١", "1\n"])
def test_a_head_that_is_no_plain_hexadecimal_names_no_sale(head: str) -> None:
    assert sale_id_of(f"{head}-{'x' * 22}") is None


@pytest.mark.parametrize("tail", ["", "x" * 21, "x" * 23, "x" * 21 + "ü", "x" * 21 + "\n", "x" * 21 + "|"])
def test_a_tail_that_is_no_signature_names_no_sale(tail: str) -> None:
    assert sale_id_of(f"1f-{tail}") is None


@pytest.mark.parametrize("text", ["", "-", "1f", "x" * 23])
def test_other_text_names_no_sale(text: str) -> None:
    assert sale_id_of(text) is None


@pytest.mark.parametrize("on_standby", [0, 1])
def test_a_ticket_reads_as_it_was_signed(on_standby: int) -> None:
    ticket = TICKET._replace(on_standby=on_standby)
    assert read_ticket(SIGNER, sign_ticket(SIGNER, ticket)) == ticket


@given(cut=st.integers(0, len(sign_ticket(SIGNER, TICKET)) - 1))
def test_a_truncated_ticket_is_refused(cut: int) -> None:
    with pytest.raises(InvalidRequest):
        read_ticket(SIGNER, sign_ticket(SIGNER, TICKET)[:cut])


@pytest.mark.parametrize(
    "body",
    [
        f"{TICKET.request_id}|31|{BUYER}|2|1",  # a better place
        f"{TICKET.request_id}|31|{BUYER}|9|{TICKET.seq}",  # more units
        f"{TICKET.request_id}|31|{BUYER[::-1]}|2|{TICKET.seq}",  # somebody else
        f"{TICKET.request_id}|32|{BUYER}|2|{TICKET.seq}",  # another sale
    ],
)
def test_a_ticket_with_a_changed_word_is_refused(body: str) -> None:
    signature = sign_ticket(SIGNER, TICKET).rpartition(".")[2]
    with pytest.raises(InvalidRequest, match="not made by this shop"):
        read_ticket(SIGNER, f"{urlsafe_b64encode(body.encode()).decode()}.{signature}")


def test_a_ticket_of_another_shop_is_refused() -> None:
    foreign = sign_ticket(Signer(["another-shop-" * 4], purpose="ticket"), TICKET)
    with pytest.raises(InvalidRequest, match="not made by this shop"):
        read_ticket(SIGNER, foreign)


def test_a_buyer_token_is_no_ticket() -> None:
    of_buyers = Signer(["ticket-key-" * 4], purpose="buyer")
    with pytest.raises(InvalidRequest, match="not made by this shop"):
        read_ticket(SIGNER, sign_ticket(of_buyers, TICKET))


@pytest.mark.parametrize("text", ["", ".", "a.b", "ü.ü", "\ud800.x", "\x00", "=.=", "w7w=.x" * 200])
def test_garbage_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_ticket(SIGNER, text)
