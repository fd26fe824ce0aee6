"""Gives the presses of an opening what its sale asks for: passes and access codes; and measures what a pass costs who
solves it, and the shop.
Never lets a robber have a pass that its cores could not have worked for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean

import altcha
from django.conf import settings

from loadtest.bench.bots.crowd import Plan, Press, Robber
from loadtest.bench.load.loop import LoadFailed
from shop.access import challenges, codes
from shop.access.passes import make_pass
from shop.sales.catalogue import SaleCard, find_sale

# A challenge is asked for as early as its pass is still good at the opening.
WORKING_SECONDS = challenges.CHALLENGE_SECONDS + settings.PASS_SECONDS
SOLVED, MADE, CHECKED = 3, 1_000, 3_000
# An answer lies between the work and twice that.
TRIES = 1.5 * settings.PASS_WORK


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
