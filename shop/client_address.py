"""Says from which address a request came. Believes only as many proxies as FAIRDROP_TRUSTED_PROXIES counts."""

from __future__ import annotations

from ipaddress import IPv6Address

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """Return the address that the outermost proxy of ours was called from, or that of the connection."""
    return address_of(request.META.get("HTTP_X_FORWARDED_FOR", ""), connection=request.META.get("REMOTE_ADDR", ""))


def limited_client(request: HttpRequest) -> str:
    """Return what failed logins are counted by."""
    return limited_address(client_address(request))


def address_of(forwarded_for: str, *, connection: str) -> str:
    """As client_address; forwarded_for: the header, to whose end each proxy adds. connection: who called us.

    What a client wrote into the header itself stands before what our proxies added, and is never read.
    """
    added = [connection, *(each.strip() for each in reversed(forwarded_for.split(",")) if each.strip())]
    proxies: int = settings.TRUSTED_PROXIES
    return added[min(proxies, len(added) - 1)]


def limited_address(address: str) -> str:
    """Return what is counted when something is limited by address: of IPv6 the network, of which a client has all."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped else parsed.packed[:8].hex()
