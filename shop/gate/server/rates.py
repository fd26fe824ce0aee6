"""How often one address, and one network, may do something, in one process. Keeps a bounded number of them, and forgets
the oldest. Never waits and never asks a store.
"""

from __future__ import annotations

import math
from time import monotonic

from shop.client_address import Origin

# All that a process keeps of addresses and networks, of three kinds of calls: 200 MB at most.
MAX_KEPT = 1_000_000
KINDS = 3
# A network may do so many times as much as one of its addresses.
ADDRESSES_OF_A_NETWORK = 4
# Moments are rounded: so little is nothing to wait for.
ROUNDING_SECONDS = 1e-6
# From so many on it is looked which buckets are full again, and when there are twice as many as were left. Few, so that
# they stay in the cache of a core.
LOOK_AT = 512


class Rates:
    """Two token buckets for each call: its address's and its network's. Of each is kept when it will be full, no more.

    at_once: so much an address may do in one moment; per_second: so much of it comes back; at_once 0: no limit.
    max_buckets: so many are kept. A full bucket is forgotten; where too few are full, one that was not used while
    half as many others were is forgotten too, and full again.
    """

    def __init__(self, at_once: float, per_second: float, *, max_buckets: int = MAX_KEPT // KINDS) -> None:
        self._limited = at_once > 0
        self._interval = 1 / (per_second or 1)
        self._network_interval = self._interval / ADDRESSES_OF_A_NETWORK
        # How far ahead the moment at which it is full may be for one more to be in it.
        self._depth = (at_once - 1) * self._interval + ROUNDING_SECONDS
        self._network_depth = (at_once * ADDRESSES_OF_A_NETWORK - 1) * self._network_interval + ROUNDING_SECONDS
        self._half = max(1, max_buckets // 2 - 4)  # a call adds two, and so does what is given back
        self._look_at = min(LOOK_AT, self._half)
        self._young: dict[str, float] = {}
        self._old: dict[str, float] = {}

    def take(self, origin: Origin) -> int:
        """Count one call; or return in how many whole seconds it may be made, and count nothing. 0: it was counted."""
        if not self._limited:
            return 0
        address, network = origin
        now = monotonic()
        young, old = self._young, self._old
        full_at = young.get(address) or old.get(address, now)
        network_full_at = young.get(network) or old.get(network, now)
        if full_at < now:
            full_at = now
        if network_full_at < now:
            network_full_at = now
        wait = full_at - now - self._depth
        network_wait = network_full_at - now - self._network_depth
        if wait > 0.0 or network_wait > 0.0:  # max() only where it waits: it is a fifth of a call
            return math.ceil(max(wait, network_wait))
        if len(young) >= self._look_at:
            self._forget(now)
            young = self._young
        young[address] = full_at + self._interval
        young[network] = network_full_at + self._network_interval
        return 0

    def _forget(self, now: float) -> None:
        """Forget what is full again; of the rest, if that is too much, what was not used for longest."""
        young = {key: full_at for key, full_at in self._young.items() if full_at > now}
        if len(young) * 4 > self._half * 3:
            self._old, self._young = young, {}
        else:
            self._old = {key: full_at for key, full_at in self._old.items() if full_at > now}
            self._young = young
        self._look_at = min(max(LOOK_AT, 2 * len(self._young)), self._half)

    def give_back(self, origin: Origin) -> None:
        """Count one call less: it was none of those that are counted."""
        for key, interval in zip(origin, (self._interval, self._network_interval), strict=True):
            full_at = self._young.get(key) or self._old.get(key)
            if full_at is not None:
                self._young[key] = full_at - interval

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
