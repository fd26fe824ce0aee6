"""Signs tickets: one Ed25519 signature for all places that one script call answered, and for each its way to the root.
Without a key for logs each ticket is signed by itself, as before. Never reads a clock or a store.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from hashlib import sha256

from inventory.records import Ticket, sign_ticket
from inventory.signing import URL_SAFE, mac
from shop.buyers import ticket_signer
from shop.tickets.keys import signing_key

PREFIX = "fdt2"
HOLDER_LENGTH = 22
SIGNED = b"fairdrop-batch-v1\n%b\n%d"  # the root of the batch, and how many tickets are in it
STANDBY = ',"standby":true'  # after the terms of one that waits on standby
PROOF = b'{"key":"%b","index":%d,"size":%d,"path":[%b],"sig":"%b"}'
# A hash and a zero byte are 44 characters in base64: the first 43 are the hash without padding.
HASH_LENGTH, STEP = 43, 44


def holder_of(key: bytes, buyer: str) -> str:
    """Return the pseudonym of a buyer in the sale with this request key."""
    return b2a_base64(mac(key, f"holder:{buyer}"), newline=False)[:HOLDER_LENGTH].translate(URL_SAFE).decode()


def sign_tickets(places: Sequence[Ticket], *, slug: str, request_key: bytes) -> list[str]:
    """Return the ticket of each of `places` (one at least) of one sale, in their order.

    The hottest line but one: all texts are written by hand, every part is a number or made of URL-safe letters.
    """
    key = signing_key()
    if key is None or key.private is None:
        signer = ticket_signer()
        return [sign_ticket(signer, place) for place in places]
    payloads = [payload_of(place, slug=slug, request_key=request_key) for place in places]
    root, paths = paths_of([sha256(b"\0" + payload).digest() for payload in payloads])
    size, key_id = len(payloads), key.key_id.encode()
    signature = _text(key.private.sign(SIGNED % (root, size)))
    proofs = [PROOF % (key_id, index, size, path, signature) for index, path in enumerate(paths)]
    return [ticket_text(payload, proof) for payload, proof in zip(payloads, proofs, strict=True)]


def payload_of(place: Ticket, *, slug: str, request_key: bytes) -> bytes:
    """Return what a ticket says, the first of its two parts."""
    name, buyer, quantity, seq, terms_version, ordinal, on_standby = place
    return (
        f'{{"v":2,"sale":"{slug}","ordinal":{ordinal},"seq":{seq},"quantity":{quantity},"request":"{name}",'
        f'"holder":"{holder_of(request_key, buyer)}","terms":{terms_version}{STANDBY if on_standby else ""}}}'
    ).encode()


def ticket_text(payload: bytes, proof: bytes) -> str:
    """Return a ticket of its two parts."""
    return f"{PREFIX}.{_text(payload).decode()}.{_text(proof).decode()}"


def _text(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False).translate(URL_SAFE).rstrip(b"=")


def paths_of(row: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Return the root of the tree over the hashes of its leaves (RFC 6962), and each leaf's path as a JSON list has it.

    From level to level two hashes become one, and one without a neighbour goes up as it is. Then from the root down:
    the path of a node is its neighbour, then the path of the node above it.
    """
    levels = []
    while len(row) > 1:
        levels.append(row)
        above = [sha256(b"\1" + left + right).digest() for left, right in zip(row[::2], row[1::2], strict=False)]
        row = [*above, row[-1]] if len(row) % 2 else above
    paths = [b""]
    for level in reversed(levels):
        texts = _texts(level)
        paths = [texts[at ^ 1] + paths[at >> 1] for at in range(len(level))]
    return row[0], [path[1:] for path in paths]


def _texts(hashes: Sequence[bytes]) -> list[bytes]:
    """Return each hash after a comma and in quotation marks, all by one call; at the end nothing, the neighbour of one
    that has none."""
    text = b2a_base64(b"\0".join(hashes) + b"\0", newline=False).translate(URL_SAFE)
    return [*(b',"%b"' % text[at : at + HASH_LENGTH] for at in range(0, len(text), STEP)), b""]
