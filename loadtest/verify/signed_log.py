"""Serves leaves and gives tickets as a shop would, with a key of its own: for tampered copies of logs, and for tests.
Opens no port.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from loadtest.verify.verify_sale import ON_TICKETS, WIDTH, Replay, node

SLUG = "copy"
ORIGIN = f"shop.example/sales/{SLUG}"
KEY = Ed25519PrivateKey.from_private_bytes(sha256(b"the key of the shop whose log is copied").digest())
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(sha256(b"a key of nobody").digest())


def write(leaves: Sequence[dict[str, Any]]) -> list[bytes]:
    """Return leaves as they are published, numbered from 0."""
    return [
        json.dumps({**leaf, "n": number}, sort_keys=True, separators=(",", ":")).encode()
        for number, leaf in enumerate(leaves)
    ]


def root_of(texts: Sequence[bytes]) -> bytes:
    replay = Replay()
    for text in texts:
        replay.add(text)
    return replay.root()


def checkpoint_of(texts: Sequence[bytes], *, key: Ed25519PrivateKey = KEY) -> str:
    """Return the signed checkpoint of these leaves."""
    text = f"{ORIGIN}\n{len(texts)}\n{b64encode(root_of(texts)).decode()}\n"
    public = key.public_key().public_bytes_raw()
    key_id = sha256(ORIGIN.encode() + b"\n\x01" + public).digest()[:4]
    return f"{text}\n— {ORIGIN} {b64encode(key_id + key.sign(text.encode())).decode()}\n"


def tickets_of(
    places: Sequence[dict[str, Any]], *, sale: str = SLUG, key: Ed25519PrivateKey = KEY, size: int = 0
) -> list[str]:
    """Return the tickets of admitted leaves, as if one call had given all of these places.

    size: of how many the signature says that they are, if not of these.
    """
    payloads = [
        json.dumps({"v": 2, "sale": sale} | {each: leaf[each] for each in ON_TICKETS}, separators=(",", ":")).encode()
        for leaf in places
    ]
    hashes = [sha256(b"\0" + payload).digest() for payload in payloads]
    signed = b"fairdrop-batch-v1\n%b\n%d" % (_subtree(hashes)[0], size or len(hashes))
    proof = {"key": sha256(key.public_key().public_bytes_raw()).hexdigest()[:8]}
    last = {"sig": _text(key.sign(signed))}
    found = []
    for index, payload in enumerate(payloads):
        path = {"index": index, "size": size or len(hashes), "path": [*map(_text, _subtree(hashes, index)[1])]}
        whole = json.dumps(proof | path | last, separators=(",", ":")).encode()
        found.append(f"fdt2.{_text(payload)}.{_text(whole)}")
    return found


def _subtree(hashes: Sequence[bytes], index: int = 0) -> tuple[bytes, list[bytes]]:
    """Return the root of a tree and the path of one of its leaves (RFC 6962, 2.1.1)."""
    if len(hashes) == 1:
        return hashes[0], []
    middle = 1 << (len(hashes) - 1).bit_length() - 1
    left, left_path = _subtree(hashes[:middle], min(index, middle - 1))
    right, right_path = _subtree(hashes[middle:], max(index - middle, 0))
    return node(left, right), [*left_path, right] if index < middle else [*right_path, left]


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


class SignedLog:
    """What a shop serves of one log. checkpoint: by default the one of these leaves. ends: when the sale does."""

    def __init__(
        self, texts: Sequence[bytes], *, checkpoint: str | None = None, ends: str = "2999-01-01T00:00:00Z"
    ) -> None:
        self._texts, self._ends = texts, ends
        self._checkpoint = checkpoint or checkpoint_of(texts)

    def get(self, path: str) -> bytes:
        """Return what is at `path`."""
        if path.endswith("/fairdrop-keys"):
            public = KEY.public_key().public_bytes_raw()
            key = urlsafe_b64encode(public).rstrip(b"=").decode()
            return json.dumps([{"key": sha256(public).hexdigest()[:8], "public": key}]).encode()
        if path.endswith(f"/sales/{SLUG}"):
            return json.dumps({"closes_at": self._ends}).encode()
        if path.endswith("/checkpoint"):
            return self._checkpoint.encode()
        number = int(path.partition("/entries/")[2].partition(".p/")[0].replace("/", "").replace("x", ""))
        tile = self._texts[number * WIDTH : (number + 1) * WIDTH]
        return b"".join(len(text).to_bytes(2, "big") + text for text in tile)
