"""An authenticator of passkeys for the tests, as the specification describes one: makes a key, counts, signs.
It can be told to be wrong in one thing. Starts nothing; https://www.w3.org/TR/webauthn-3/, section 6.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

PRESENT, VERIFIED, ATTESTED = 1, 4, 64


def encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "===")


@dataclass
class Authenticator:
    """One passkey at `origin`. verifies: whether it says that it verified its owner; count: of its uses."""

    origin: str
    verifies: bool = True
    count: int = 0
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def create(self, options: dict[str, Any], **wrong: Any) -> str:
        """Answer navigator.credentials.create; wrong: what of client data, or rp_id, is not as it should be."""
        numbers = self.key.public_key().public_numbers()
        public_key = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        attested = bytes(16) + len(self.credential_id).to_bytes(2, "big") + self.credential_id + cbor2.dumps(public_key)
        data = self._authenticator_data(wrong.pop("rp_id", options["rp"]["id"]), flags=ATTESTED) + attested
        client_data = self._client_data("webauthn.create", options, **wrong)
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer(clientDataJSON=encode(client_data), attestationObject=encode(attestation))

    def show(self, options: dict[str, Any], *, counts: bool = True, **wrong: Any) -> str:
        """Answer navigator.credentials.get; counts: whether it counts this use."""
        self.count += counts
        data = self._authenticator_data(wrong.pop("rp_id", options["rpId"]))
        client_data = self._client_data("webauthn.get", options, **wrong)
        signature = self.key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(SHA256()))
        return self._answer(
            clientDataJSON=encode(client_data), authenticatorData=encode(data), signature=encode(signature)
        )

    def _authenticator_data(self, rp_id: str, *, flags: int = 0) -> bytes:
        flags |= PRESENT | (VERIFIED if self.verifies else 0)
        return hashlib.sha256(rp_id.encode()).digest() + bytes([flags]) + self.count.to_bytes(4, "big")

    def _client_data(self, kind: str, options: dict[str, Any], **wrong: Any) -> bytes:
        said = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps(said | wrong).encode()

    def _answer(self, **response: str) -> str:
        name = encode(self.credential_id)
        return json.dumps({"id": name, "rawId": name, "type": "public-key", "response": response})
