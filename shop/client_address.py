"""Says from which address and network a request came. Believes only the proxies of FAIRDROP_TRUSTED_PROXIES."""

from __future__ import annotations

import re
import socket
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TypeAlias

from django.conf import settings
from django.http import HttpRequest

from inventory.exceptions import InvalidRequest
from inventory.signing import mac

# More proxies in a row than anybody has; what stands before them is never read.
MAX_HOPS = 16
IPV4_IN_IPV6 = bytes(10) + b"\xff\xff"
IPV6_BYTES = 16
# The prefix of a network, by version.
COUNTED_BITS = {4: 24, 6: 48}
MARK_LENGTH = 12
MARK = re.compile(rf"[0-9a-f]{{{MARK_LENGTH}}}")


# By what a call is counted: its address, of IPv6 the /64, and its network, the /24 of IPv4 and the /48 of IPv6.
Origin: TypeAlias = tuple[str, str]


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
    address, rest = connection, forwarded_for
    for hop in range(MAX_HOPS):
        if not rest or not _is_proxy(address, hop, settings.TRUSTED_PROXIES):
            break
        rest, _, added = rest.rstrip(", \t").rpartition(",")
        added = added.strip()
        if not _packed(added):
            break
        address = added
    return address


@lru_cache(maxsize=4096)
def _is_proxy(address: str, hop: int, proxies: int | tuple[str, ...]) -> bool:
    if isinstance(proxies, int):
        return hop < proxies
    packed = _packed(address)
    if not packed:
        return False
    # A listener for both families names IPv4 callers "::ffff:10.0.0.2": good for a network written in either way.
    names = {ip_address(address), ip_address(packed)}
    return any(name in ip_network(each) for each in proxies for name in names)


def _packed(text: str) -> bytes:
    """Return the bytes of an address, 4 of IPv4 and 16 of IPv6; none when it is no address."""
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):
        return b""
    return packed[12:] if packed.startswith(IPV4_IN_IPV6) else packed


def limited_address(address: str) -> str:
    """Return what is counted when something is limited by address: of IPv6 the network, of which a client has all."""
    return _origin(address)[0] if ":" in address else address


def network_of(address: str) -> str:
    """Return the network of `address`: its /24 of IPv4, its /48 of IPv6. What is no address is a network of its own."""
    return _origin(address)[1]


def network_mark(network: str) -> str:
    """Return what stands for `network` where one is kept: nobody can find the network from it without our key.

    Another one after a new first key (settings.TOKEN_KEYS): network_marks has those of all keys.
    """
    return _mark(network, settings.TOKEN_KEYS[0])


def network_marks(network: str) -> set[str]:
    """Return the marks of `network` by every key that this shop knows."""
    return {_mark(network, key) for key in settings.TOKEN_KEYS}


def read_mark(text: str) -> str:
    """Return the mark that staff mean by `text`: a mark, an address, or a network. Raises InvalidRequest."""
    if MARK.fullmatch(text):
        return text
    try:
        found = ip_network(text.strip(), strict=False)
    except ValueError as error:
        raise InvalidRequest("name a network, an address, or the mark of a network") from error
    if found.prefixlen < (COUNTED_BITS[found.version]):
        raise InvalidRequest("a network is a /24 of IPv4 or a /48 of IPv6, no larger one")
    return network_mark(network_of(str(found.network_address)))


def _mark(network: str, key: str) -> str:
    return mac(key.encode(), f"network:{network}").hex()[:MARK_LENGTH]


def _origin(address: str) -> Origin:
    if ":" not in address:
        return address, address.rpartition(".")[0] or f"?{address}"
    packed = _packed(address)
    if len(packed) == IPV6_BYTES:
        return packed[:8].hex(), packed[:6].hex()
    return _origin(".".join(map(str, packed))) if packed else (address, f"?{address}")


def origin_of(forwarded_for: bytes | None, *, connection: str, proxies: int | tuple[str, ...] | None = None) -> Origin:
    """Return by what a call is counted. forwarded_for: all of the header, None without one.

    proxies: those of ours, from a caller who has read the settings.
    """
    if proxies is None:
        proxies = settings.TRUSTED_PROXIES
    if forwarded_for is None or not _is_proxy(connection, 0, proxies):
        return _origin(connection)
    text = forwarded_for.decode("latin-1")
    # Nearly always: the one IPv4 address that our one proxy was called from, for which this costs a third.
    if "," not in text:
        try:
            socket.inet_pton(socket.AF_INET, text)
        except (OSError, ValueError):
            pass
        else:
            return text, text[: text.rindex(".")]
    return _origin(address_of(text, connection=connection))
