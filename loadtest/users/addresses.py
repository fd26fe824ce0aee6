"""Gives each simulated buyer an address, which a shop believes that trusts the load generator as a proxy of its own.
Never gives one that is this machine's or a private one.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

HEADER = "X-Forwarded-For"


def address_of(buyer: str) -> str:
    """Return the address of `buyer`, a text that is the same for all calls of one: nearly each has its own network."""
    number = crc32(buyer.encode())
    return f"{11 + number % 100}.{number >> 8 & 255}.{number >> 16 & 255}.{1 + (number >> 24) % 254}"


def network_in(headers: Mapping[str, str]) -> str:
    """Return the network, a /24, of the address that `headers` give; '' when they give none."""
    return headers.get(HEADER, "").rpartition(".")[0]


def coming_from(buyer: str) -> dict[str, str]:
    """Return the header that says so."""
    return {HEADER: address_of(buyer)}
