"""What the keys of the logs sign: checkpoints, as signed notes (C2SP)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shop.tickets.keys import LogKey, LogOff, log_keys

ED25519 = b"\x01"


class Checkpoint(NamedTuple):
    """How long a log is, and the root of its tree."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """Return what is signed (tlog-checkpoint)."""
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"


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
