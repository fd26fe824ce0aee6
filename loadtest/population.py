"""Plans what every buyer of a flood will do, from a seed: which sales, how many clicks, what they do with a unit.
Never talks to anything, so the same seed is the same crowd whatever the number of processes.
Called by the crowd.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

FIRST = "first"
DOUBLE = "double"  # a second click beside the first: both are on their way at once
AGAIN = "again"  # a second click after the answer

# What buyers do with a unit that is held for them, and when they are told to wait for one. Cards are drawn, not dice:
# whoever wins, of every ten exactly so many pay.
PAYS, LAPSES, CANCELS, PAYS_LATE = "pays", "lapses", "cancels", "pays late"
LEAVES, STAYS = "leaves", "stays"
DECKS = {
    "held": (*[PAYS] * 6, *[LAPSES] * 2, CANCELS, PAYS_LATE),
    "waitlisted": (LEAVES, *[STAYS] * 9),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """One buyer's wish for units of one sale: one idempotency key, clicked once or more."""

    sale: str
    key: str
    quantity: int
    repeats: tuple[str, ...]  # DOUBLE or AGAIN, one for each click after the first


@dataclass(frozen=True, slots=True)
class Visit:
    """One buyer from arrival to leaving."""

    number: int
    wishes: tuple[Wish, ...]

    @property
    def clicks(self) -> int:
        """How many purchase attempts this visit makes."""
        return sum(1 + len(wish.repeats) for wish in self.wishes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """A crowd of `buyers` that makes `attempts` purchase attempts in all, `repeat_share` of them repeats."""

    sales: tuple[str, ...]
    buyers: int
    attempts: int
    seed: int
    repeat_share: float = 0.3

    def visits(self, *, part: int = 0, parts: int = 1) -> Iterator[Visit]:
        """Yield the visits of one of `parts` processes; together they are exactly the whole crowd."""
        for number in range(part, self.buyers, parts):
            yield self.visit(number)

    def visit(self, number: int) -> Visit:
        """Plan the visit of buyer `number`; rounding is carried from buyer to buyer, so sums are exact."""
        begin, end = (self.attempts * n // self.buyers for n in (number, number + 1))
        repeats = int(end * self.repeat_share) - int(begin * self.repeat_share)
        wishes = max(1, end - begin - repeats) if end > begin else 0
        repeats = end - begin - wishes
        dice = random.Random(f"{self.seed}:{number}")
        return Visit(number, tuple(self._wishes(dice, wishes=wishes, repeats=repeats)))

    def cards(self, sale: str, kind: str, *, part: int = 0) -> Iterator[str]:
        """Yield without end what the buyers of a sale do one after the other when they are `kind` (see DECKS)."""
        dice = random.Random(f"{self.seed}:{sale}:{kind}:{part}")
        while True:
            yield from dice.sample(DECKS[kind], len(DECKS[kind]))

    def _wishes(self, dice: random.Random, *, wishes: int, repeats: int) -> Iterator[Wish]:
        order = dice.sample(self.sales, len(self.sales))
        styles: list[list[str]] = [[] for _ in range(wishes)]
        for _ in range(repeats):
            dice.choice(styles).append(dice.choice((DOUBLE, AGAIN)))
        for place, style in enumerate(styles):
            key = f"{dice.getrandbits(128):032x}"
            yield Wish(order[place % len(order)], key, 1, tuple(style))
