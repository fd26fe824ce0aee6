"""Waits until a line may have work: a hint on a channel, or the sweep's interval. Loses nothing when hints are lost.
Never blocks longer than a second (pitfalls L10, L11), and never lets hints pile up: one look serves all that have come.
"""

from __future__ import annotations

import time
from typing import Any

from inventory.exceptions import RedisUnavailable
from inventory.redis import (
    FAILURES,
    AsyncSubscription,
    Client,
    is_cut_off,
    keys,
    subscribe_async,
    subscription_of,
)

# Taken with the first one: what comes in faster than that is read at the next wait.
MAX_HINTS = 1000


class WakeUps:
    """A subscription of its own connection to the wake channel; of a Cluster at any server that answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subscription: Any = None

    def wait(self, *, seconds: float) -> bool:
        """Wait up to `seconds` (at most 1) for a hint; say whether one came. Raises RedisUnavailable."""
        deadline = time.monotonic() + min(seconds, 1.0)
        if is_cut_off(self._subscription):
            self._end()
        try:
            if self._subscription is None:
                self._subscription = subscription_of(self._client, ignore_subscribe_messages=True)
                self._subscription.subscribe(keys.wake_channel())
                # A hint sent before the subscription is not seen: let the caller look once more.
                self._subscription.get_message(timeout=0.01)
                return True
            while (left := deadline - time.monotonic()) > 0:
                if self._subscription.get_message(timeout=left) is not None:
                    for _ in range(MAX_HINTS):
                        if self._subscription.get_message(timeout=0) is None:
                            break
                    return True
        except FAILURES as error:
            self._end()
            raise RedisUnavailable from error
        return False

    def _end(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.reset()


async def wait_for_settled(subscription: AsyncSubscription, *, seconds: float) -> bool:
    """Wait up to `seconds` (at most 1) until a batch of any SKU was settled or primed; say whether one was.

    Raises RedisUnavailable; the caller then makes a new subscription.
    """
    if is_cut_off(subscription):
        raise RedisUnavailable
    try:
        if not subscription.subscribed:
            await subscribe_async(subscription, keys.settled_channel())
        if await subscription.get_message(ignore_subscribe_messages=True, timeout=min(seconds, 1.0)) is None:
            return False
        for _ in range(MAX_HINTS):
            if await subscription.get_message(ignore_subscribe_messages=True, timeout=0) is None:
                break
    except FAILURES as error:
        raise RedisUnavailable from error
    return True
