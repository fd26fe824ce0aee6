"""Reads tickets that sign_tickets has signed, and checks all of them: the path, the signature, every letter.
Never says whether the place is still there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from inventory.exceptions import InvalidRequest
from inventory.records import Ticket
from shop.tickets.keys import decode, encode, known_key
from shop.tickets.signing import PREFIX, PROOF, SIGNED, ticket_text


class SignedTicket(NamedTuple):
    """A ticket of this shop. place: without its buyer; holder: their pseudonym in its sale, whose slug is sale."""

    place: Ticket
    holder: str
    sale: str


def is_signed(text: str) -> bool:
    """Say whether `text` is written as a ticket that anybody can check."""
    return text.startswith(f"{PREFIX}.")


def read_signed(text: str) -> SignedTicket:
    """Return what a ticket says. Raises InvalidRequest for one that is cut short, altered, or of another shop."""
    try:
        payload, proof = map(decode, text.split(".")[1:])
        found = json.loads(proof)
        path = [decode(each) for each in found["path"]]
        root = root_of(payload, index=found["index"], size=found["size"], path=path)
        signature, key = decode(found["sig"]), known_key(found["key"])
        is_whole = text == ticket_text(payload, _written(found, path=path, signature=signature))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidRequest("this is not a ticket: it was cut short or altered") from None
    if not is_whole:
        raise InvalidRequest("this ticket was altered")
    if key is None:
        raise InvalidRequest("this ticket is signed by a key that this shop does not have")
    try:
        _public(key.public).verify(signature, SIGNED % (root, found["size"]))
    except InvalidSignature:
        raise InvalidRequest("this ticket was not made by this shop, or altered") from None
    return _read(json.loads(payload))


def root_of(payload: bytes, *, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root to which a path leads (RFC 9162, 2.1.3.2). Raises ValueError when it cannot be one."""
    at, last, root = index, size - 1, sha256(b"\0" + payload).digest()
    if not 0 <= at <= last:
        raise ValueError("no such leaf")
    for each in path:
        if last == 0:
            raise ValueError("the path is too long")
        if at & 1 or at == last:
            root = sha256(b"\1" + each + root).digest()
            while at and not at & 1:
                at, last = at >> 1, last >> 1
        else:
            root = sha256(b"\1" + root + each).digest()
        at, last = at >> 1, last >> 1
    if last:
        raise ValueError("the path is too short")
    return root


def _written(proof: dict[str, Any], *, path: Sequence[bytes], signature: bytes) -> bytes:
    """Return the proof as it is written."""
    texts = b",".join(b'"%b"' % encode(each).encode() for each in path)
    return PROOF % (proof["key"].encode(), proof["index"], proof["size"], texts, encode(signature).encode())


def _read(said: dict[str, Any]) -> SignedTicket:
    names = ("request", "quantity", "seq", "terms", "ordinal")
    name, quantity, seq, terms_version, ordinal = (said[each] for each in names)
    place = Ticket(name, "", quantity, seq, terms_version, ordinal, int(said.get("standby", False)))
    return SignedTicket(place, said["holder"], said["sale"])


@lru_cache(maxsize=4)
def _public(raw: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(raw)
