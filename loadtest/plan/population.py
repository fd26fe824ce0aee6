"""Plans what every buyer of a flood will do, from a seed: what kind they are, which sales, how many clicks, what then.
Never talks to anything, so the same seed is the same crowd whatever the number of processes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

FIRST = "first"
DOUBLE = "double"  # a second click alongside the first: both are on their way at once
AGAIN = "again"  # a second click after the answer
ON_STANDBY = "standby"  # the same wish once more, on standby, by one who was sent away

# What buyers do with a unit that is held for them, and when they are told to wait for one. Cards are drawn, not dice:
# no matter who wins, of every ten exactly so many pay.
PAYS, LAPSES, CANCELS, PAYS_LATE = "pays", "lapses", "cancels", "pays late"
LEAVES, STAYS = "leaves", "stays"
# When they are told at admission that nothing is left for them. Few stand by: each looks again and again to the end.
STANDS_BY, GOES = "stands by", "goes"
SENT_AWAY = "sent away"
DECKS: dict[str, tuple[str, ...]] = {
    "held": (*[PAYS] * 6, *[LAPSES] * 2, CANCELS, PAYS_LATE),
    "waitlisted": (LEAVES, *[STAYS] * 9),
    SENT_AWAY: (STANDS_BY, *[GOES] * 24),
}

# The buyers who come. A shopper is the standard flood's: every kind of click and of ending in one person.
SHOPPER = "shopper"
HONEST, IMPATIENT, BOT, HOARDER = "honest", "impatient", "bot", "hoarder"
LATE_PAYER, RESTORER, WATCHER = "late payer", "restorer", "watcher"
# Of every twenty who come, exactly so many.
EVERYBODY = {HONEST: 9, IMPATIENT: 3, BOT: 1, HOARDER: 2, LATE_PAYER: 2, RESTORER: 2, WATCHER: 1}
BUILT_IN = {SHOPPER: 20, **EVERYBODY}
AUTO_MIX, SHOPPERS_MIX, EVERYBODY_MIX = "auto", "shoppers", "everybody"
MIXES: dict[str, dict[str, int]] = {SHOPPERS_MIX: {SHOPPER: 1}, EVERYBODY_MIX: EVERYBODY} | {
    kind: {kind: 1} for kind in EVERYBODY
}
BOT_KEYS = 4
# All bots come from so few addresses, each with a network of its own; every other buyer has both alone.
BOT_NETWORKS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How one kind of buyer goes about it: all want units of one sale, with a key for each wish."""

    clicks: tuple[tuple[str, ...], ...] = ((),)  # a wish each: DOUBLE or AGAIN for each click after its first
    page_views: int = 1
    at_once: bool = False
    hammers: bool = False
    # Cards, as in DECKS: what they do with a unit, and when they are told to wait for one.
    held: tuple[str, ...] = (*[PAYS] * 8, *[CANCELS] * 2)
    waitlisted: tuple[str, ...] = DECKS["waitlisted"]


# A kind of one's own is added when its user class is made.
KINDS = {
    HONEST: Kind(),
    # Two tabs; in one of them a double click, and a refresh that asks again.
    IMPATIENT: Kind(clicks=((DOUBLE, AGAIN), ()), page_views=2, at_once=True),
    BOT: Kind(
        clicks=((DOUBLE,),) * BOT_KEYS, page_views=0, at_once=True, hammers=True, held=(PAYS,), waitlisted=(STAYS,)
    ),
    HOARDER: Kind(held=(LAPSES,), waitlisted=(STAYS,)),
    LATE_PAYER: Kind(held=(PAYS_LATE,), waitlisted=(STAYS,)),
    RESTORER: Kind(),
    WATCHER: Kind(),
}


def who_comes(offered: Mapping[str, int], *, mix: str, planned: bool) -> dict[str, int]:
    """Return the kinds that come, by weight; none when the mix has none of those that are offered.

    offered: weights by kind. AUTO_MIX: all that are offered when somebody chose among the built-in kinds, else
    everybody when arrivals are planned, and shoppers when not. A kind of one's own comes with every mix.
    """
    # In this order wherever they are written down: the same seed must be the same crowd.
    own = sorted(offered.keys() - BUILT_IN.keys())
    if mix == AUTO_MIX and not BUILT_IN.keys() <= offered.keys():
        names = dict(offered)
    else:
        names = MIXES[(EVERYBODY_MIX if planned else SHOPPERS_MIX) if mix == AUTO_MIX else mix]
    return {kind: offered[kind] for kind in (*BUILT_IN, *own) if kind in offered and (kind in names or kind in own)}


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
    # The buyers who come, by weight: of every round of so many, exactly so many of each.
    kinds: Mapping[str, int] = field(default_factory=lambda: MIXES[SHOPPERS_MIX])

    @property
    def clicks(self) -> int:
        """How many purchase attempts the whole crowd makes."""
        if SHOPPER in self.kinds:
            return self.attempts if len(self.kinds) == 1 else sum(visit.clicks for visit in self.visits())
        of_kind = {kind: self._visit_of(kind, 0).clicks for kind in self.kinds}
        rounds, rest = divmod(self.buyers, sum(self.kinds.values()))
        of_rest = sum(of_kind[self.kind_of(number)] for number in range(self.buyers - rest, self.buyers))
        return of_rest + rounds * sum(count * of_kind[kind] for kind, count in self.kinds.items())

    def visits(self, *, part: int = 0, parts: int = 1) -> Iterator[Visit]:
        """Yield the visits of one of `parts` processes; together they are exactly the whole crowd."""
        for number in range(part, self.buyers, parts):
            yield self.visit(number)

    def visit(self, number: int) -> Visit:
        """Plan the visit of buyer `number`; rounding is carried from buyer to buyer, so sums are exact."""
        if (kind := self.kind_of(number)) != SHOPPER:
            return self._visit_of(kind, number)
        begin, end = (self.attempts * n // self.buyers for n in (number, number + 1))
        repeats = int(end * self.repeat_share) - int(begin * self.repeat_share)
        wishes = max(1, end - begin - repeats) if end > begin else 0
        repeats = end - begin - wishes
        dice = random.Random(f"{self.seed}:{number}")
        return Visit(number, tuple(self._wishes(dice, wishes=wishes, repeats=repeats)))

    def kind_of(self, number: int) -> str:
        """Draw what kind of buyer comes as `number`: in every full round exactly as many of each as the weights say."""
        if len(self.kinds) == 1:
            return next(iter(self.kinds))
        kinds = [kind for kind, count in self.kinds.items() for _ in range(count)]
        turn, place = divmod(number, len(kinds))
        return random.Random(f"{self.seed}:kinds:{turn}").sample(kinds, len(kinds))[place]

    def cards(self, sale: str, kind: str, *, part: int = 0, buyer_kind: str = SHOPPER) -> Iterator[str]:
        """Yield without end what the buyers of a sale do one after the other when they are `kind` (see DECKS)."""
        who = "" if buyer_kind == SHOPPER else f":{buyer_kind}"
        deck = DECKS[kind] if buyer_kind == SHOPPER else getattr(KINDS[buyer_kind], kind, DECKS[kind])
        dice = random.Random(f"{self.seed}:{sale}:{kind}:{part}{who}")
        while True:
            yield from dice.sample(deck, len(deck))

    def _visit_of(self, kind: str, number: int) -> Visit:
        """Plan the visit of one kind of buyer: all want one unit of one sale, and differ in how they go about it."""
        dice, plan = random.Random(f"{self.seed}:{number}"), KINDS[kind]
        sale = dice.choice(self.sales)
        wishes = tuple(Wish(sale, f"{dice.getrandbits(128):032x}", 1, repeats) for repeats in plan.clicks)
        return Visit(number, wishes, kind, plan.page_views, plan.at_once, plan.hammers)

    def _wishes(self, dice: random.Random, *, wishes: int, repeats: int) -> Iterator[Wish]:
        order = dice.sample(self.sales, len(self.sales))
        styles: list[list[str]] = [[] for _ in range(wishes)]
        for _ in range(repeats):
            dice.choice(styles).append(dice.choice((DOUBLE, AGAIN)))
        for place, style in enumerate(styles):
            key = f"{dice.getrandbits(128):032x}"
            yield Wish(order[place % len(order)], key, 1, tuple(style))
