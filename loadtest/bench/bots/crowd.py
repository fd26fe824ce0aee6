"""Plans who comes to an opening: people who react as people do, some behind shared addresses, and a robber. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadtest.bench.load.payloads import BODY, address, post
from shop.buyers import issue_buyer

# A lognormal: half of the people press within this, hardly anybody sooner than a fifth of a second.
REACTION_MEDIAN_SECONDS, REACTION_SIGMA = 0.45, 0.35
LAST_SECONDS = 1.0
# Apart from the people's, which are made from their numbers.
SHARED_PREFIX, ROBBER_ADDRESS = "203.0", "198.51.100.7"
NETWORK_ADDRESSES = [f"198.51.100.{host}" for host in range(1, 251)]
MANY_PREFIX = "198.18"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The sale, the people, and the robbers. Shared addresses have a network each, and as many people each.

    robber_codes: of as many codes as there are units.
    """

    units: int = 200
    people: int = 1_000
    shared_per_cent: int = 30
    shared_addresses: int = 20
    tokens: int = 2_000
    networks: int = 50
    robber_codes: int = 20
    robber_seconds: float = 0.010
    one_address_seconds: float = 0.2
    rounds: int = 3
    seed: int = 18


FULL = Plan()
QUICK = Plan(rounds=1)


@dataclass(frozen=True, kw_only=True)
class Robber:
    """What one attack does. addresses: from which its tokens press in turn, in the first `seconds`; none: nobody comes.

    cores: so many work for passes; guesses: presses with made-up codes and has no real ones; releases: gives back
    what it held once the people have gone.
    """

    name: str
    addresses: Sequence[str]
    seconds: float
    cores: int = 0
    guesses: bool = False
    releases: bool = False


NOBODY, ONE_ADDRESS, ONE_NETWORK, MANY_NETWORKS, HOLDING, SOLVER, SOLVER_ON_TWO, GUESSING = ROBBER_NAMES = (
    "nobody",
    "one address",
    "first 10 ms, one network",
    "many networks",
    "hold and release",
    "solver of passes, one core",
    "solver of passes, two cores",
    "guessing of codes",
)


def robbers_of(plan: Plan) -> dict[str, Robber]:
    """Return every robber by its name."""
    many = [f"{MANY_PREFIX}.{number}.7" for number in range(plan.networks)]
    soon = plan.robber_seconds
    every = (
        Robber(name=NOBODY, addresses=(), seconds=soon),
        Robber(name=ONE_ADDRESS, addresses=(ROBBER_ADDRESS,), seconds=plan.one_address_seconds),
        Robber(name=ONE_NETWORK, addresses=NETWORK_ADDRESSES, seconds=soon),
        Robber(name=MANY_NETWORKS, addresses=many, seconds=soon),
        Robber(name=HOLDING, addresses=(ROBBER_ADDRESS,), seconds=soon, releases=True),
        Robber(name=SOLVER, addresses=many, seconds=soon, cores=1),
        Robber(name=SOLVER_ON_TWO, addresses=many, seconds=soon, cores=2),
        Robber(name=GUESSING, addresses=many, seconds=soon, guesses=True),
    )
    return {each.name: each for each in every}


@dataclass(frozen=True, kw_only=True)
class Press:
    """One press. at: seconds after the opening; is_shared: its buyer has an address with many others.

    pass_text, code: what it shows, '' for none.
    """

    at: float
    buyer: str
    token: str
    origin: str
    is_shared: bool = False
    pass_text: str = ""
    code: str = ""

    def request(self, slug: str, *, port: int) -> bytes:
        """Return it as bytes."""
        return post(
            f"/api/v1/sales/{slug}/requests",
            port=port,
            token=self.token,
            origin=self.origin,
            body=f'{{"quantity":1,"code":"{self.code}"}}'.encode() if self.code else BODY,
            headers=f"Fairdrop-Pass: {self.pass_text}\r\n" if self.pass_text else "",
        )


def people_of(plan: Plan, *, dice: random.Random) -> list[Press]:
    """Return the presses of the people, the first one first."""
    shared = plan.people * plan.shared_per_cent // 100
    found = []
    for number, at in zip(range(plan.people), _reactions(dice), strict=False):
        is_shared = number < shared
        origin = f"{SHARED_PREFIX}.{number % plan.shared_addresses}.1" if is_shared else address(number)
        found.append(_press(at, origin=origin, is_shared=is_shared))
    return sorted(found, key=lambda press: press.at)


def presses_of(robber: Robber, plan: Plan) -> list[Press]:
    """Return the presses of all tokens of a robber, in the first moments."""
    count = plan.tokens if robber.addresses else 0
    return [
        _press(number / count * robber.seconds, origin=robber.addresses[number % len(robber.addresses)])
        for number in range(count)
    ]


def _reactions(dice: random.Random) -> Iterator[float]:
    while True:
        seconds = REACTION_MEDIAN_SECONDS * dice.lognormvariate(0.0, REACTION_SIGMA)
        if seconds <= LAST_SECONDS:
            yield seconds


def _press(at: float, *, origin: str, is_shared: bool = False) -> Press:
    buyer, token = issue_buyer()
    return Press(at=at, buyer=buyer, token=token, origin=origin, is_shared=is_shared)
