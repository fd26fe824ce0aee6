"""The keys that sign tickets and the public logs, from the settings. Never shows a private key."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from inventory.exceptions import FairdropError

KEY_TEXT = re.compile(
    r"(?P<begins>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)=(?P<public>pub:)?(?P<key>[A-Za-z0-9_-]{43})", re.ASCII
)


class LogOff(FairdropError):
    """This shop keeps no public log."""

    code, status = "not_found", 404


class LogKey(NamedTuple):
    """One key pair. begins, ends: ISO moments, ends None of one that signs and of one that was appended and does not
    sign yet; private: None of one that signs no more."""

    key_id: str
    public: bytes
    begins: str
    ends: str | None
    private: Ed25519PrivateKey | None


def encode(raw: bytes) -> str:
    """Return base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Return what `encode` wrote. Raises ValueError."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def keeps_logs() -> bool:
    """Say whether this shop keeps public logs of its sales."""
    return bool(settings.SALE_LOG and settings.LOG_KEYS)


def log_keys() -> tuple[LogKey, ...]:
    """Return the keys of this shop, the one that signs first. Raises LogOff when it keeps no logs."""
    if not keeps_logs():
        raise LogOff
    return _read_keys(tuple(settings.LOG_KEYS))


def signing_key() -> LogKey | None:
    """Return the key that signs, None in a shop that keeps no logs and in a process without the private key."""
    try:
        key = log_keys()[0]
    except LogOff:
        return None
    return key if key.private is not None else None


def known_key(key_id: str) -> LogKey | None:
    """Return a key that signs or has signed, also while no logs are kept; None for one that this shop does not have."""
    return next((key for key in _read_keys(tuple(settings.LOG_KEYS)) if key.key_id == key_id), None)


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
        # One that is newer than the one before it was appended, and does not sign yet.
        ends = keys[-1].begins if keys and keys[-1].begins >= found["begins"] else None
        keys.append(LogKey(sha256(public).hexdigest()[:8], public, found["begins"], ends, private))
    return tuple(keys)
