"""The shapes of a flood as stages of arrivals: what each is for, and how many come when.
Never sends anything and needs no Locust.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadtest.plan.arrivals import Arrivals, Stage
from loadtest.shop_api import ShopError

# The share of the buyers of an opening that wait for it.
WAITING_SHARE = 0.4
KNEE_STEPS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
OVERLOADS = (("knee", 1), ("twice the knee", 2), ("four times the knee", 4), ("knee again", 1))


def smoke(rate: float, seconds: float) -> tuple[Stage, ...]:
    """A few buyers for a short time: does everything work at all?"""
    return (Stage("steady", seconds, rate, rate),)


def doors_open(rate: float, seconds: float) -> tuple[Stage, ...]:
    """Many wait for the opening and come in one instant, the others ebb away; `rate` is the mean."""
    buyers = rate * seconds
    at_once = round(buyers * WAITING_SHARE)
    return (Stage("doors open", seconds, 2 * (buyers - at_once) / seconds, 0.0, at_once),)


def knee(rate: float, seconds: float) -> tuple[Stage, ...]:
    """Steps from a quarter of `rate` to one and a half: the last one that is still answered in time is the knee."""
    each = seconds / len(KNEE_STEPS)
    return tuple(Stage(f"{rate * step:g}/s", each, rate * step, rate * step) for step in KNEE_STEPS)


def overload(rate: float, seconds: float) -> tuple[Stage, ...]:
    """The knee (`rate`), twice and four times it, and the knee again: what is left of it, and how soon it is well."""
    each = seconds / len(OVERLOADS)
    return tuple(Stage(name, each, rate * times, rate * times) for name, times in OVERLOADS)


def soak(rate: float, seconds: float) -> tuple[Stage, ...]:
    """An even rate for long: what grows that should not? Its figures are given by quarters."""
    return tuple(Stage(f"quarter {number}", seconds / 4, rate, rate) for number in range(1, 5))


def double_wave(rate: float, seconds: float) -> tuple[Stage, ...]:
    """Two waves with a lull between: is the second one served like the first? `rate` is that of the crests."""
    low, side = rate / 10, seconds / 5
    return (
        Stage("first wave rises", side, low, rate),
        Stage("first wave falls", side, rate, low),
        Stage("lull", side, low, low),
        Stage("second wave rises", side, low, rate),
        Stage("second wave falls", side, rate, low),
    )


@dataclass(frozen=True, slots=True)
class ShapePlan:
    """A shape with what it takes when nothing else is said; rate 0: it must be said."""

    stages: Callable[[float, float], tuple[Stage, ...]]
    rate: float
    seconds: float


PLANS = {
    "smoke": ShapePlan(smoke, 20, 15),
    "doors_open": ShapePlan(doors_open, 60, 30),
    "knee": ShapePlan(knee, 120, 60),
    "overload": ShapePlan(overload, 0, 80),
    "soak": ShapePlan(soak, 40, 600),
    "double_wave": ShapePlan(double_wave, 80, 50),
}


def arrivals_of(shape: str, *, rate: float, seconds: float, seed: int) -> Arrivals:
    """Return a shape's arrivals; 0 means: as the shape wants. Raises ShopError when nobody would come."""
    plan = PLANS[shape]
    rate = rate or plan.rate
    if not rate:
        raise ShopError(f"The shape {shape} needs --rate, buyers a second at the knee; the shape knee finds it.")
    arrivals = Arrivals(plan.stages(rate, seconds or plan.seconds), seed)
    if arrivals.total < 1:
        raise ShopError("With this rate and these seconds nobody comes.")
    return arrivals
