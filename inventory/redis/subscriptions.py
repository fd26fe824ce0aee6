"""Listens to Redis: to channels, and at lists for a signal. Never to a server that is known to be away, and at a list
never for longer than MAX_BLOCK_SECONDS.
"""

from __future__ import annotations

from typing import Any

from inventory.exceptions import RedisUnavailable
from inventory.redis.client import FAILURES, AsyncClient, AsyncSubscription, Client, shards_of, unavailable
from inventory.redis.commands import client_for
from inventory.redis.connections import WaitingPlace

# A wait is looked up from at least this often: a signal is a hint only, and it may be lost (L10, L11).
MAX_BLOCK_SECONDS = 1.0


def subscription_of(client: Client | AsyncClient, **options: Any) -> Any:
    """Return a new subscription; of a Cluster at any server that answers, for all of them hear every message.

    Raises RedisUnavailable when none does.
    """
    shards = shards_of(client)
    if shards is None:
        return client.pubsub(**options)
    name = next((each for each in shards.topology.shards() if not shards.topology.is_away(each)), None)
    if name is None:
        raise RedisUnavailable
    subscription = shards.client_of(name).pubsub(**options)
    subscription.fairdrop_is_cut_off = lambda: not shards.topology.serves(name)
    return subscription


def is_cut_off(subscription: Any) -> bool:
    """Say whether the server that a subscription listens to is known to be away: it would be silent for ever."""
    return bool(getattr(subscription, "fairdrop_is_cut_off", bool)())


async def subscribe_async(subscription: AsyncSubscription, channel: str) -> None:
    """Subscribe to `channel`. May raise any of FAILURES."""
    if (cluster := getattr(subscription, "cluster", None)) is not None:
        await cluster.initialize()  # a Cluster that was not asked anything yet does not know who serves the channel
    await subscription.subscribe(channel)


def wait_for_signal(
    client: Client, key: str, *, seconds: float, place: WaitingPlace, place_seconds: float
) -> str | None:
    """Wait up to `seconds` (at most one) for an element of the list `key`, and take it; None when none came.

    Waits on a connection of its own (L10, L11). With `place` the caller keeps its turn from one call to the next, for
    `place_seconds` at most, and leaves it when it wants no element any more. Raises RedisUnavailable.
    """
    look = max(0.01, min(seconds, MAX_BLOCK_SECONDS))
    own = None
    try:
        own = client_for(client, key)
        return place.wait(own, key, seconds=look, block_seconds=max(look, place_seconds))
    except RedisUnavailable:
        place.leave()
        raise
    except FAILURES as error:
        raise unavailable(error, client, own, key=key) from error
