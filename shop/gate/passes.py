"""GET /api/v1/sales/<slug>/challenge and POST …/passes: makes and checks in a bounded pool of its own, so that the
event loop, and a request that has its pass, never waits for either.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from inventory.exceptions import InvalidRequest, SaleClosed
from inventory.redis import clocks
from shop.access import challenges
from shop.access.passes import Pass, make_calm_pass
from shop.gate.server.threads import ThreadPool
from shop.http import read_json_object
from shop.sales.catalogue import SaleCard

# One core of this machine at most; the next caller is told to come again.
THREADS, MAX_WAITING = 1, 256


class Passes:
    """What one process gives out."""

    def __init__(self) -> None:
        self._threads = ThreadPool("passes", threads=THREADS, max_waiting=MAX_WAITING)

    async def challenge(self, card: SaleCard, *, buyer: str) -> dict[str, Any]:
        """Return a challenge for `buyer`. Raises SaleClosed, and Unavailable when too many wait for one."""
        refuse_closed(card)
        return await self._threads.run(partial(challenges.make_challenge, card, buyer=buyer))

    async def redeem(self, card: SaleCard, body: bytes, *, buyer: str) -> Pass:
        """Return the pass for what was found, or for nothing while none is asked for.

        Raises InvalidRequest, PassRequired, SaleClosed, Unavailable.
        """
        given = read_json_object(body)
        refuse_closed(card)
        if not given:
            return make_calm_pass(card, buyer=buyer)
        payload = given.get("payload")
        if given.keys() != {"payload"} or not isinstance(payload, str):
            raise InvalidRequest("the body must be {}, or have a payload that is a text and nothing else")
        return await self._threads.run(partial(challenges.redeem, payload, card, buyer=buyer))


def refuse_closed(card: SaleCard) -> None:
    """Raise SaleClosed for a sale that is over: nobody needs a pass for it."""
    if card.retired_at is not None or card.state_at(clocks.now()) == "closed":
        raise SaleClosed
