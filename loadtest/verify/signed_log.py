"""Serves leaves as a shop would, with a key of its own: for tampered copies of logs, and for tests. Opens no port."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from loadtest.verify.verify_sale import WIDTH, Tree

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
    tree = Tree()
    for text in texts:
        tree.add(text)
    return tree.root()


def checkpoint_of(texts: Sequence[bytes], *, key: Ed25519PrivateKey = KEY) -> str:
    """Return the signed checkpoint of these leaves."""
    text = f"{ORIGIN}\n{len(texts)}\n{b64encode(root_of(texts)).decode()}\n"
    public = key.public_key().public_bytes_raw()
    key_id = sha256(ORIGIN.encode() + b"\n\x01" + public).digest()[:4]
    return f"{text}\n— {ORIGIN} {b64encode(key_id + key.sign(text.encode())).decode()}\n"


class SignedLog:
    """What a shop serves of one log. checkpoint: by default the one of these leaves."""

    def __init__(self, texts: Sequence[bytes], *, checkpoint: str | None = None) -> None:
        self._texts = texts
        self._checkpoint = checkpoint or checkpoint_of(texts)

    def get(self, path: str) -> bytes:
        """Return what is at `path`."""
        if path.endswith("/fairdrop-keys"):
            public = KEY.public_key().public_bytes_raw()
            key = urlsafe_b64encode(public).rstrip(b"=").decode()
            return json.dumps([{"key": sha256(public).hexdigest()[:8], "public": key}]).encode()
        if path.endswith("/checkpoint"):
            return self._checkpoint.encode()
        number = int(path.partition("/entries/")[2].partition(".p/")[0].replace("/", "").replace("x", ""))
        tile = self._texts[number * WIDTH : (number + 1) * WIDTH]
        return b"".join(len(text).to_bytes(2, "big") + text for text in tile)
