"""Plans what every buyer of a flood will do, from a seed: what kind they are, which sales, how many clicks, what then.
Never talks to anything, so the same seed is the same crowd whatever the number of processes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

FIRST = "first"
DOUBLE = "double"  # a second click alongside the first: both are on their way at once
AGAIN = "again"  # a second click after the answer
ON_STANDBY = "standby"  # the same wish once more, on standby, by one who was sent away

# What buyers do with a unit that is held for them, and when they are told to wait for one. Cards are drawn, not dice:
# no matter who wins, of every ten exactly so many pay.
PAYS, LAPSES, CANCELS, PAYS_LATE = "pays", "lapses", "cancels", "pays late"
LEAVES, STAYS = "leaves", "stays"
# When they are told at the door that nothing is left for them. Few stand by: each looks again and again to the end.
STANDS_BY, GOES = "stands by", "goes"
SENT_AWAY = "sent away"
DECKS: dict[str, tuple[str, ...]] = {
    "held": (*[PAYS] * 6, *[LAPSES] * 2, CANCELS, PAYS_LATE),
    "waitlisted": (LEAVES, *[STAYS] * 9),
    SENT_AWAY: (STANDS_BY, *[GOES] * 24),
}

# Who comes. A shopper is the standard flood's: every kind of click and of ending in one person.
SHOPPER = "shopper"
HONEST, IMPATIENT, BOT, HOARDER = "honest", "impatient", "bot", "hoarder"
LATE_PAYER, RESTORER, WATCHER = "late payer", "restorer", "watcher"
# Of every twenty who come, exactly so many.
EVERYBODY = {HONEST: 9, IMPATIENT: 3, BOT: 1, HOARDER: 2, LATE_PAYER: 2, RESTORER: 2, WATCHER: 1}
SHOPPERS_MIX, EVERYBODY_MIX = "shoppers", "everybody"
MIXES: dict[str, dict[str, int]] = {SHOPPERS_MIX: {}, EVERYBODY_MIX: EVERYBODY} | {
    kind: {kind: 1} for kind in EVERYBODY
}
# What each does who is not a shopper; one that is not named does as the honest do.
KIND_DECKS: dict[str, dict[str, tuple[str, ...]]] = {
    HONEST: {"held": (*[PAYS] * 8, *[CANCELS] * 2), "waitlisted": DECKS["waitlisted"]},
    BOT: {"held": (PAYS,), "waitlisted": (STAYS,)},
    HOARDER: {"held": (LAPSES,), "waitlisted": (STAYS,)},
    LATE_PAYER: {"held": (PAYS_LATE,), "waitlisted": (STAYS,)},
}
BOT_KEYS = 4
# All bots come from so few addresses, each with a network of its own; every other buyer has both alone.
BOT_NETWORKS = 20


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
    kind: str = SHOPPER
    page_views: int = 1
    at_once: bool = False  # all wishes at the same moment, as from several tabs; else one after the other
    hammers: bool = False  # asks again without the pause it is told to make

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
    mix: str = SHOPPERS_MIX

    @property
    def clicks(self) -> int:
        """How many purchase attempts the whole crowd makes."""
        if not MIXES[self.mix]:
            return self.attempts
        of_kind = {kind: self._visit_of(kind, 0).clicks for kind in MIXES[self.mix]}
        rounds, rest = divmod(self.buyers, sum(MIXES[self.mix].values()))
        of_rest = sum(of_kind[self.kind_of(number)] for number in range(self.buyers - rest, self.buyers))
        return of_rest + rounds * sum(count * of_kind[kind] for kind, count in MIXES[self.mix].items())

    def visits(self, *, part: int = 0, parts: int = 1) -> Iterator[Visit]:
        """Yield the visits of one of `parts` processes; together they are exactly the whole crowd."""
        for number in range(part, self.buyers, parts):
            yield self.visit(number)

    def visit(self, number: int) -> Visit:
        """Plan the visit of buyer `number`; rounding is carried from buyer to buyer, so sums are exact."""
        if MIXES[self.mix]:
            return self._visit_of(self.kind_of(number), number)
        begin, end = (self.attempts * n // self.buyers for n in (number, number + 1))
        repeats = int(end * self.repeat_share) - int(begin * self.repeat_share)
        wishes = max(1, end - begin - repeats) if end > begin else 0
        repeats = end - begin - wishes
        dice = random.Random(f"{self.seed}:{number}")
        return Visit(number, tuple(self._wishes(dice, wishes=wishes, repeats=repeats)))

    def kind_of(self, number: int) -> str:
        """Draw what kind of buyer comes as `number`: in every full round exactly as many of each as the mix says."""
        kinds = [kind for kind, count in MIXES[self.mix].items() for _ in range(count)] or [SHOPPER]
        turn, place = divmod(number, len(kinds))
        return random.Random(f"{self.seed}:kinds:{turn}").sample(kinds, len(kinds))[place]

    def cards(self, sale: str, kind: str, *, part: int = 0, buyer_kind: str = SHOPPER) -> Iterator[str]:
        """Yield without end what the buyers of a sale do one after the other when they are `kind` (see DECKS)."""
        who = "" if buyer_kind == SHOPPER else f":{buyer_kind}"
        decks = DECKS if buyer_kind == SHOPPER else DECKS | KIND_DECKS.get(buyer_kind, KIND_DECKS[HONEST])
        dice = random.Random(f"{self.seed}:{sale}:{kind}:{part}{who}")
        while True:
            yield from dice.sample(decks[kind], len(decks[kind]))

    def _visit_of(self, kind: str, number: int) -> Visit:
        """Plan the visit of one kind of buyer: all want one unit of one sale, and differ in how they go about it."""
        dice = random.Random(f"{self.seed}:{number}")
        sale = dice.choice(self.sales)

        def wish(*repeats: str) -> Wish:
            return Wish(sale, f"{dice.getrandbits(128):032x}", 1, repeats)

        if kind == IMPATIENT:  # two tabs; in one of them a double click, and a refresh that asks again
            return Visit(number, (wish(DOUBLE, AGAIN), wish()), kind, page_views=2, at_once=True)
        if kind == BOT:
            keys = tuple(wish(DOUBLE) for _ in range(BOT_KEYS))
            return Visit(number, keys, kind, page_views=0, at_once=True, hammers=True)
        return Visit(number, (wish(),), kind)

    def _wishes(self, dice: random.Random, *, wishes: int, repeats: int) -> Iterator[Wish]:
        order = dice.sample(self.sales, len(self.sales))
        styles: list[list[str]] = [[] for _ in range(wishes)]
        for _ in range(repeats):
            dice.choice(styles).append(dice.choice((DOUBLE, AGAIN)))
        for place, style in enumerate(styles):
            key = f"{dice.getrandbits(128):032x}"
            yield Wish(order[place % len(order)], key, 1, tuple(style))
