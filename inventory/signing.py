"""Signs short texts and checks them: the first key signs, every key verifies. Never encrypts."""

from __future__ import annotations

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Sequence
from functools import cache, lru_cache

from django.conf import settings

MAC_BYTES = 16
MAC_LENGTH = 22  # of 16 bytes in base64 without padding
BLOCK_BYTES = 64  # of SHA-256
URL_SAFE = bytes.maketrans(b"+/", b"-_")
INNER, OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))


class Signer:
    """HMAC-SHA-256 over "purpose:text", cut to 128 bits; a text signed for one purpose means nothing for another.

    keys: at least one secret; rotation puts the new one first. purpose: a constant word.
    """

    def __init__(self, keys: Sequence[str], *, purpose: str) -> None:
        if not keys:
            raise ValueError("a signer needs at least one key")
        # Deriving a key per purpose once leaves the hot path a single HMAC without a prefix.
        self._keys = [hmac.digest(key.encode(), purpose.encode(), "sha256") for key in keys]

    def sign(self, text: str) -> str:
        """Return the 22-character signature of `text`."""
        return mac_text(self._keys[0], text)

    def verify(self, text: str, signature: str) -> bool:
        """Say whether any key made `signature` for `text`; compares in constant time."""
        if not signature.isascii():
            return False
        for key in self._keys:  # noqa: SIM110 - the generator alone would cost as much as a signature
            if hmac.compare_digest(mac_text(key, text), signature):
                return True
        return False


@cache
def signer_for(purpose: str) -> Signer:
    """Return this shop's signer of texts for one purpose; its first key signs (rotation: settings.TOKEN_KEYS)."""
    return Signer(settings.TOKEN_KEYS, purpose=purpose)


@lru_cache(maxsize=4096)
def keyed(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Return the inner and the outer hash of HMAC-SHA-256 (RFC 2104) with `key` read in.

    Copies of these two cost a third of what hmac.digest does, and half of a copy of hmac.new.
    """
    block = (key if len(key) <= BLOCK_BYTES else hashlib.sha256(key).digest()).ljust(BLOCK_BYTES, b"\0")
    return hashlib.sha256(block.translate(INNER)), hashlib.sha256(block.translate(OUTER))


def mac(key: bytes, text: str) -> bytes:
    """Return HMAC-SHA-256 of `text` under `key`, 32 bytes."""
    began, ended = keyed(key)
    inner, outer = began.copy(), ended.copy()
    inner.update(text.encode("utf-8", "surrogatepass"))  # forged text may hold anything; it must be refused, not fail
    outer.update(inner.digest())
    return outer.digest()


def mac_text(key: bytes, text: str) -> str:
    """Return 128 bits of HMAC-SHA-256 of `text` under `key`, as 22 URL-safe characters."""
    return b2a_base64(mac(key, text)[:MAC_BYTES], newline=False)[:MAC_LENGTH].translate(URL_SAFE).decode()
