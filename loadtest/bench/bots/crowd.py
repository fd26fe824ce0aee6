"""Plans who comes to an opening, people who react as people do and a robber, and to which defences; gives the presses
what its sale asks for, passes and access codes; and measures what a pass costs who solves it, and the shop.
Never lets a robber have a pass that its cores could not have worked for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean
from typing import Any

import altcha
from django.conf import settings

from loadtest.bench.harness.fixtures import NO_LIMIT
from loadtest.bench.harness.servers import NO_RATES
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import BODY, address, post
from shop.access import challenges, codes
from shop.access.passes import make_pass
from shop.buyers import issue_buyer
from shop.sales.catalogue import SaleCard, find_sale

PASS: dict[str, Any] = {"pass_mode": "always"}
CODE: dict[str, Any] = {"codes_required": True}
EMAIL: dict[str, Any] = {"email_mode": "once"}
# A challenge is asked for as early as its pass is still good at the opening.
WORKING_SECONDS = challenges.CHALLENGE_SECONDS + settings.PASS_SECONDS
SOLVED, MADE, CHECKED = 3, 1_000, 3_000
# An answer lies anywhere below twice the work.
TRIES = settings.PASS_WORK
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


NOBODY, ONE_ADDRESS, ONE_NETWORK, MANY_NETWORKS, HOLDING, SOLVER, SOLVER_ON_TWO, GUESSING = (
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


@dataclass(frozen=True, kw_only=True)
class Defence:
    """environment: of the web process; terms: columns of the sale. Without any it is the shop with its defaults."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asks_for_passes(self) -> bool:
        """Say whether each request needs a pass."""
        return "pass_mode" in self.terms

    @property
    def asks_for_codes(self) -> bool:
        """Say whether each request needs an access code."""
        return "codes_required" in self.terms


NONE = Defence(name="none", environment=NO_RATES, terms=NO_LIMIT)
RATES = Defence(name="calls by address", terms=NO_LIMIT)
NETWORKS = Defence(name="units by network", environment=NO_RATES)
PASSES = Defence(name="passes", environment=NO_RATES, terms=NO_LIMIT | PASS)
CODES = Defence(name="access codes", environment=NO_RATES, terms=NO_LIMIT | CODE)
DEFAULTS = Defence(name="the defaults")
DEFAULTS_AND_PASSES = Defence(name="the defaults, passes", terms=PASS)
ALL = Defence(name="all", terms=PASS | CODE)

# Robber → defences. The first row is nobody's, and what people wait there is what every other wait is compared with.
OPENINGS = {
    NOBODY: (NONE, DEFAULTS, PASSES, CODES, ALL),
    ONE_ADDRESS: (NONE, RATES, NETWORKS, PASSES, CODES, DEFAULTS, ALL),
    ONE_NETWORK: (NONE, RATES, NETWORKS, PASSES, CODES, DEFAULTS, ALL),
    MANY_NETWORKS: (NONE, RATES, NETWORKS, PASSES, CODES, DEFAULTS, ALL),
    HOLDING: (NONE, RATES, NETWORKS, DEFAULTS, ALL),
    SOLVER: (NONE, PASSES, DEFAULTS_AND_PASSES, ALL),
    SOLVER_ON_TWO: (PASSES, DEFAULTS_AND_PASSES, ALL),
    GUESSING: (NONE, CODES, ALL),
}


@dataclass(frozen=True, kw_only=True)
class Armed:
    """Presses with what they show. proofs: passes or codes of the robber; cpu_seconds: what its passes cost it."""

    people: list[Press]
    robber: list[Press]
    proofs: int = 0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PassCosts:
    """What passes cost here. seconds: of a core, to solve one; made, checked: by the shop, a second and core."""

    seconds: float
    made: float
    checked: float


def costs_of_passes(slug: str) -> PassCosts:
    """Return what passes of this sale cost here. Raises PassRequired when one is not taken, LoadFailed."""
    card, buyer, found = find_sale(slug), "solver", []
    for _ in range(SOLVED):
        challenge = altcha.Challenge.from_dict(challenges.make_challenge(card, buyer=buyer))
        began = time.process_time()
        solution = altcha.solve_challenge(challenge)
        if solution is None:
            raise LoadFailed("the challenge has no solution")
        found.append((time.process_time() - began) / solution.counter * TRIES)
        payload = altcha.Payload(challenge, solution).to_base64()
    # What was checked already costs as much again: only the admission script knows that a pass was spent.
    return PassCosts(
        seconds=mean(found),
        made=_per_second(partial(challenges.make_challenge, card, buyer=buyer), calls=MADE),
        checked=_per_second(partial(challenges.redeem, payload, card, buyer=buyer), calls=CHECKED),
    )


def _per_second(call: Callable[[], object], *, calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        call()
    return calls / (time.process_time() - began)


def passes_of(robber: Robber, *, tokens: int, pass_seconds: float) -> int:
    """Return how many passes a robber's cores can work for before the opening, one for a token at most."""
    return min(int(robber.cores * WORKING_SECONDS / pass_seconds), tokens)


def with_passes(armed: Armed, slug: str, *, robber: Robber, pass_seconds: float) -> Armed:
    """Return them with passes: of all people, and as many of the robber as its cores can work for."""
    card = find_sale(slug)
    proofs = passes_of(robber, tokens=len(armed.robber), pass_seconds=pass_seconds)
    return Armed(
        people=[_with_pass(press, card) for press in armed.people],
        robber=[_with_pass(press, card) for press in armed.robber[:proofs]] + armed.robber[proofs:],
        proofs=proofs,
        cpu_seconds=proofs * pass_seconds,
    )


def with_codes(armed: Armed, slug: str, *, robber: Robber, plan: Plan, dice: random.Random) -> Armed:
    """Return them with as many codes as there are units: some of the robber, the others of people drawn by lot."""
    made = codes.make_codes(
        find_sale(slug).sale_id, number=plan.units, uses=1, counts_units=False, batch="people and robber"
    )
    own = 0 if robber.guesses else min(plan.robber_codes, len(armed.robber))
    lot = set(dice.sample(range(len(armed.people)), min(plan.units - plan.robber_codes, len(armed.people))))
    left = iter(made[own:])
    people = [replace(each, code=next(left)) if number in lot else each for number, each in enumerate(armed.people)]
    robbers = _with_codes(armed.robber[:own], made) + armed.robber[own:]
    if robber.guesses:
        robbers = _with_codes(armed.robber, ["".join(dice.choices(codes.DIGITS, k=codes.LENGTH)) for _ in armed.robber])
    return replace(armed, people=people, robber=robbers, proofs=armed.proofs or own)


def _with_codes(presses: Sequence[Press], texts: Sequence[str]) -> list[Press]:
    return [replace(each, code=text) for each, text in zip(presses, texts, strict=False)]


def _with_pass(press: Press, card: SaleCard) -> Press:
    given = make_pass(card, buyer=press.buyer, proof=press.buyer, until=int(time.time()))
    return replace(press, pass_text=given.text)
