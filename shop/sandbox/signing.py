"""Writes a notice as signed bytes and reads it back. Never believes a byte that is not signed, nor an old one."""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import get_args

from inventory.exceptions import InvalidRequest
from shop.payments.providers import Kind, Notice

HEADER = "Sandbox-Signature"
# A clock may be wrong and a network slow; a notice that somebody kept to send it again is older.
TOLERANCE_SECONDS = 300
SIGNATURE = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})", re.ASCII)


def write_notice(notice: Notice) -> bytes:
    """Return the body that tells `notice`."""
    fields = {
        "id": notice.event_id,
        "kind": notice.kind,
        "reference": notice.reference,
        "amount": str(notice.amount),
        "currency": notice.currency,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def sign(body: bytes, *, secret: str, moment: int | None = None) -> str:
    """Return the header's value for `body`, signed at `moment` (Unix seconds; default: now)."""
    stamp = int(time.time()) if moment is None else moment
    return f"t={stamp},v1={_mac(body, secret=secret, stamp=str(stamp))}"


def read_notice(headers: Mapping[str, str], body: bytes, *, secret: str) -> Notice:
    """Return the notice in `body`. Raises InvalidRequest when it is not signed, not by us, too old, or no notice."""
    found = SIGNATURE.fullmatch(headers.get(HEADER, ""))
    if found is None:
        raise InvalidRequest(f"{HEADER} is missing or not of the form t=…,v1=…")
    if not hmac.compare_digest(found[2], _mac(body, secret=secret, stamp=found[1])):
        raise InvalidRequest("the signature is not that of this body")
    if abs(time.time() - int(found[1])) > TOLERANCE_SECONDS:
        raise InvalidRequest("the notice was signed too long ago, or in the future")
    try:
        return _parse(json.loads(body))
    except (ValueError, KeyError, TypeError, InvalidOperation) as error:
        raise InvalidRequest("not a valid notice") from error


def _parse(fields: dict[str, str]) -> Notice:
    if fields["kind"] not in get_args(Kind):
        raise ValueError(fields["kind"])
    return Notice(
        event_id=fields["id"],
        kind=fields["kind"],  # type: ignore[arg-type]
        reference=fields["reference"],
        amount=Decimal(fields["amount"]),
        currency=fields["currency"],
    )


def _mac(body: bytes, *, secret: str, stamp: str) -> str:
    return hmac.digest(secret.encode(), stamp.encode() + b"." + body, "sha256").hex()
