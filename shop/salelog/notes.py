"""The keys of the logs, and what they sign: checkpoints, as signed notes (C2SP). Never shows a private key."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings

from inventory.exceptions import FairdropError

ED25519 = b"\x01"
KEY_TEXT = re.compile(
    r"(?P<begins>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)=(?P<public>pub:)?(?P<key>[A-Za-z0-9_-]{43})", re.ASCII
)


class LogOff(FairdropError):
    """This shop keeps no public log."""

    code, status = "not_found", 404


class LogKey(NamedTuple):
    """One key pair. begins, ends: ISO moments, ends None while it signs; private: None of one that signs no more."""

    key_id: str
    public: bytes
    begins: str
    ends: str | None
    private: Ed25519PrivateKey | None


class Checkpoint(NamedTuple):
    """How long a log is, and the root of its tree."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """Return what is signed (tlog-checkpoint)."""
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"


def encode(raw: bytes) -> str:
    """Return base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Return what `encode` wrote. Raises ValueError."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def log_keys() -> tuple[LogKey, ...]:
    """Return the keys of this shop, the one that signs first. Raises LogOff when there is none."""
    if not settings.SALE_LOG or not settings.LOG_KEYS:
        raise LogOff
    return _read_keys(tuple(settings.LOG_KEYS))


@lru_cache(maxsize=4)
def _read_keys(texts: Sequence[str]) -> tuple[LogKey, ...]:
    keys: list[LogKey] = []
    for text in texts:
        found = KEY_TEXT.fullmatch(text)
        if found is None:
            raise ValueError("FAIRDROP_LOG_KEYS: each must be a moment, = and a seed, or = and pub: and a key")
        raw = decode(found["key"])
        private = None if found["public"] else Ed25519PrivateKey.from_private_bytes(raw)
        public = private.public_key().public_bytes_raw() if private else raw
        ends = keys[-1].begins if keys else None
        keys.append(LogKey(sha256(public).hexdigest()[:8], public, found["begins"], ends, private))
    return tuple(keys)


def note_key_id(name: str, public: bytes) -> bytes:
    """Return the four bytes by which a note names an Ed25519 key (signed-note)."""
    return sha256(name.encode() + b"\n" + ED25519 + public).digest()[:4]


def sign(checkpoint: Checkpoint) -> str:
    """Return the signed note of a checkpoint, by the first key. Raises LogOff."""
    key = log_keys()[0]
    if key.private is None:
        raise LogOff("the first of FAIRDROP_LOG_KEYS must be a private one")
    text = checkpoint.text()
    signature = note_key_id(checkpoint.origin, key.public) + key.private.sign(text.encode())
    return f"{text}\n— {checkpoint.origin} {b64encode(signature).decode()}\n"


def read_note(note: str) -> Checkpoint:
    """Return the checkpoint of a note that one of our keys has signed. Raises ValueError for any other."""
    text, gap, signatures = note.partition("\n\n")
    lines = text.split("\n")
    if not gap or len(lines) != 3:
        raise ValueError("this is not a checkpoint")
    origin, size, root = lines
    checkpoint = Checkpoint(origin, int(size), b64decode(root, validate=True))
    for line in signatures.splitlines():
        dash, name, signed = line.split(" ")
        raw = b64decode(signed, validate=True)
        if (dash, name) == ("—", origin) and any(_is_signed(checkpoint, key, raw) for key in log_keys()):
            return checkpoint
    raise ValueError("none of our keys has signed this checkpoint")


def _is_signed(checkpoint: Checkpoint, key: LogKey, raw: bytes) -> bool:
    if raw[:4] != note_key_id(checkpoint.origin, key.public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(raw[4:], checkpoint.text().encode())
    except InvalidSignature:
        return False
    return True
