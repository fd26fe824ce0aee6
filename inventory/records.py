"""Names a request, writes and reads its record in Redis, signs and reads its ticket; names a stock's figures.
Never talks to Redis.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from inventory.exceptions import InvalidRequest
from inventory.signing import MAC_LENGTH, Signer, mac_text
from inventory.states import STATE_OF_LETTER, State

# One on standby lies so far above its seq in the line; scripts/shared/head_waits.lua has it too.
STANDBY_SCORE = 2**52
# The sale in hexadecimal, a dash, 128 bits in URL-safe base64.
ID_PATTERN = re.compile(rf"([0-9a-f]{{1,12}})-[A-Za-z0-9_-]{{{MAC_LENGTH}}}")


class Record(NamedTuple):
    """What Redis keeps of a request: "letter|seq|quantity|sale_id|buyer|terms_version.ordinal"; as long as it waits,
    also ".network" if that is known; of a hold "|its end in ms", and of a place its ticket brought back "|r".

    One from before there were versions has neither version nor ordinal: both are 0.
    """

    state: State
    seq: int  # place in line, µs
    quantity: int
    sale_id: int
    buyer: str
    hold_expires_ms: int | None = None
    restored: bool = False
    terms_version: int = 0  # of the terms under which the place was given
    ordinal: int = 0  # how many were admitted to the sale before it, and one
    network: str = ""  # from which it was asked, as the gate names it

    @property
    def score(self) -> int:
        """Where it lies in the line: at its seq; one on standby after all others."""
        return self.seq + STANDBY_SCORE if self.state is State.STANDBY else self.seq

    def text(self) -> str:
        """Return the record as Redis stores it."""
        version = f"|{self.terms_version}.{self.ordinal}" if self.terms_version or self.ordinal else ""
        version += f".{self.network}" if version and self.network else ""
        end = f"|{self.hold_expires_ms}" if self.hold_expires_ms is not None else "|r" if self.restored else ""
        return f"{self.state.letter}|{self.seq}|{self.quantity}|{self.sale_id}|{self.buyer}{version}{end}"


class StockFigures(NamedTuple):
    """The stock as the database has it after a commit."""

    available: int
    held: int
    sold: int
    version: int


def read_record(text: str) -> Record:
    """Return the record that `text` holds. Raises ValueError or KeyError when it is none."""
    letter, seq, quantity, sale_id, buyer, *extra = text.split("|")
    version, _, rest = extra.pop(0).partition(".") if extra and "." in extra[0] else ("0", "", "0")
    ordinal, _, network = rest.partition(".")
    restored = extra == ["r"]
    return Record(
        state=STATE_OF_LETTER[letter],
        seq=int(seq),
        quantity=int(quantity),
        sale_id=int(sale_id),
        buyer=buyer,
        hold_expires_ms=int(extra[0]) if extra and not restored else None,
        restored=restored,
        terms_version=int(version),
        ordinal=int(ordinal),
        network=network,
    )


def record_or_none(text: str | None) -> Record | None:
    """Return the record in `text`, None when there is none or it cannot be read."""
    try:
        return read_record(text or "")
    except (ValueError, KeyError):
        return None


def asked_in(text: str) -> tuple[str, str, str, str] | None:
    """Return (state's letter, quantity, sale id, buyer) in a record's text, without a look at its end.

    Each as text, because records are compared by the million; None when the text cannot be read.
    """
    letter, *rest = text.split("|", 5)
    if len(rest) < 4 or letter not in STATE_OF_LETTER or not rest[1].isdecimal():
        return None
    return letter, rest[1], rest[2], rest[3]


def buyer_in(text: str) -> str:
    """Return the buyer in a record's text, without a look at the rest of it; '' when it has none."""
    return text.split("|", 5)[4] if text.count("|") >= 4 else ""


def request_id(*, sale_id: int, request_key: bytes, buyer: str, idempotency_key: str) -> str:
    """Return the id of a request: a retry has the same one by construction (I14).

    It begins with the sale in hexadecimal, so that anyone who holds the id knows which line to ask.
    """
    return f"{sale_id:x}-{mac_text(request_key, f'{buyer}:{idempotency_key}')}"


def sale_id_of(request_id: str) -> int | None:
    """Return the sale that `request_id` names, or None when it has not the form of an id."""
    found = ID_PATTERN.fullmatch(request_id)
    return int(found[1], 16) if found else None


class Ticket(NamedTuple):
    """The place of an admitted request, as its buyer keeps it; the sale is named by the request id."""

    request_id: str
    buyer: str
    quantity: int
    seq: int
    terms_version: int = 0
    ordinal: int = 0
    on_standby: int = 0  # 1: it waits on standby


def sign_ticket(signer: Signer, ticket: Ticket) -> str:
    """Return `ticket` as text that only we could have written: "id.buyer.quantity.seq.terms.ordinal.signature".

    One on standby has ".1" before its signature.
    """
    name, buyer, quantity, seq, terms_version, ordinal, on_standby = ticket
    body = f"{name}.{buyer}.{quantity}.{seq}.{terms_version}.{ordinal}{'.1' if on_standby else ''}"
    return f"{body}.{signer.sign(body)}"


def read_ticket(signer: Signer, text: str) -> Ticket:
    """Return the ticket in `text`. Raises InvalidRequest when it is forged, truncated or foreign."""
    body, _, signature = text.rpartition(".")
    if not signer.verify(body, signature):
        raise InvalidRequest("this ticket was not made by this shop")
    try:
        name, buyer, *numbers = body.split(".")
        if len(numbers) not in (2, 4, 5):  # two: from before there were versions
            raise ValueError(body)
        return Ticket(name, buyer, *map(int, numbers))
    except ValueError as error:
        raise InvalidRequest("this is not a ticket") from error
