"""Plans who comes to an opening: people who react as people do, some behind shared addresses, and a robber. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.bench.load.payloads import address, post
from shop.buyers import issue_buyer

# A lognormal: half of the people press within this, hardly anybody sooner than a fifth of a second.
REACTION_MEDIAN_SECONDS, REACTION_SIGMA = 0.45, 0.35
LAST_SECONDS = 1.0
# Apart from the people's, which are made from their numbers.
SHARED_PREFIX, ROBBER_ADDRESS = "203.0", "198.51.100.7"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The sale, the people, and the robber. Shared addresses have a network each."""

    units: int = 200
    people: int = 1_000
    shared_per_cent: int = 30
    shared_addresses: int = 20
    tokens: int = 2_000
    robber_seconds: float = 0.010
    rounds: int = 3
    seed: int = 18


FULL = Plan()
QUICK = Plan(rounds=1)


@dataclass(frozen=True, kw_only=True)
class Press:
    """One press. at: seconds after the opening; is_shared: its buyer has an address with many others."""

    at: float
    buyer: str
    request: bytes
    is_shared: bool = False


def people_of(plan: Plan, *, slug: str, port: int, dice: random.Random) -> list[Press]:
    """Return the presses of the people, the first one first."""
    shared = plan.people * plan.shared_per_cent // 100
    found = []
    for number, at in zip(range(plan.people), _reactions(dice), strict=False):
        group = dice.randrange(plan.shared_addresses) if number < shared else None
        origin = address(number) if group is None else f"{SHARED_PREFIX}.{group}.1"
        found.append(_press(slug, port=port, at=at, origin=origin, is_shared=group is not None))
    return sorted(found, key=lambda press: press.at)


def robber_of(plan: Plan, *, slug: str, port: int) -> list[Press]:
    """Return the presses of one address with many tokens, all in the first moment."""
    moments = [number / plan.tokens * plan.robber_seconds for number in range(plan.tokens)]
    return [_press(slug, port=port, at=at, origin=ROBBER_ADDRESS) for at in moments]


def _reactions(dice: random.Random) -> Iterator[float]:
    while True:
        seconds = REACTION_MEDIAN_SECONDS * dice.lognormvariate(0.0, REACTION_SIGMA)
        if seconds <= LAST_SECONDS:
            yield seconds


def _press(slug: str, *, port: int, at: float, origin: str, is_shared: bool = False) -> Press:
    buyer, token = issue_buyer()
    request = post(f"/api/v1/sales/{slug}/requests", port=port, token=token, origin=origin)
    return Press(at=at, buyer=buyer, request=request, is_shared=is_shared)
