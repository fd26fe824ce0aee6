"""Makes the trouble of a flood, the same in every run, mutated or not: a settler dies with a batch in its hands, one
after its COMMIT, one is frozen with a batch that there are too few units for by then, loses its lock and wakes when
others have gone on; the notary dies. Never judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inventory import redis
from inventory.audit import line
from inventory.exceptions import InvalidRequest
from inventory.fault_injection import marker
from inventory.locks.lock import force_release
from inventory.models import Stock
from inventory.redis import keys
from loadtest.mutants.processes import HEALTHY, SLEEPER, TAKER, TELLER, Processes
from loadtest.mutants.watching import seen_within
from shop.models import Sale
from shop.salelog.models import SaleLog
from shop.staff import sale_control

STEP_SECONDS = 20.0
# In line behind the last unit, so that some must wait when the first batch of each SKU is decided.
BEYOND_THE_STOCK = 20
LOCK_LOST = "lock lost"


@dataclass
class Trouble:
    """skus: in the order in which a settler goes round. miscounted: units that staff do not find for a while.

    missed: the steps that did not come about in time.
    """

    shop: Processes
    skus: Sequence[str]
    units: int
    miscounted: int
    missed: list[str] = field(default_factory=list)
    is_miscounted: bool = False

    def make(self) -> None:
        """Go through every step; under a mutant some cannot come about, and are noted as missed."""
        self._step("the lines are long", lambda: all(self._waiting(sku) for sku in self.skus))
        self._lose_the_notary()
        self._lose_three()
        for sku in self.skus:
            force_release(redis.connect(), sku)
        self.shop.wake(*HEALTHY)
        self.shop.next_notary()
        self._wake_the_sleeper()

    def _lose_the_notary(self) -> None:
        """Kill it when it has published places of every sale; the next one starts when others have been decided."""
        self._step("the logs have begun", lambda: SaleLog.objects.filter(ordinal__gt=0).count() == len(self.skus))
        self.shop.kill_notary()
        self._step("the notary is killed", lambda: not self.shop.notary.running)

    def _lose_three(self) -> None:
        """Let three settlers take a SKU's line each: frozen with the batch, killed with it, killed after COMMIT."""
        self.shop.wake(SLEEPER)
        self._step("one is frozen", lambda: self.shop.has_said(SLEEPER, marker("after_take")))
        # A batch is taken for the units that there are. Now some of it stays undecided, until the frozen one wakes.
        self.is_miscounted = self._correct(-self.miscounted)
        for name in (TAKER, TELLER):
            self.shop.wake(name)
            self._step(f"the {name} is killed", lambda name=name: not self.shop.settlers[name].running)  # type: ignore[misc]

    def _wake_the_sleeper(self) -> None:
        """Wake it when the others have given all units and there are some again that nobody has yet."""
        self._step("its units are given", lambda: self._free() == 0)
        self._freeze_the_healthy()
        if self.is_miscounted:
            self._correct(self.miscounted)
        self.shop.wake(SLEEPER)
        self._step("it found its lock lost", lambda: self.shop.has_said(SLEEPER, LOCK_LOST))
        self.shop.wake(*HEALTHY)

    def _freeze_the_healthy(self) -> None:
        """Stop them while neither holds a lock."""

        def idle() -> bool:
            self.shop.freeze(*HEALTHY)
            if not any(redis.connect().get(keys.lock(sku)) for sku in self.skus):
                return True
            self.shop.wake(*HEALTHY)
            return False

        if not self._step("the others rest", idle):
            self.shop.freeze(*HEALTHY)

    def _correct(self, units: int) -> bool:
        """Correct the count of the SKU that the frozen one has, as staff do who have counted again; say if it was done.

        Under a mutant more may be held than there are: then the shop refuses, and it is noted as missed.
        """
        slug = Sale.objects.values_list("slug", flat=True).get(stock__sku=self.skus[0])
        try:
            sale_control.adjust(slug, units=units, actor="mutants", reason="counted again")
        except InvalidRequest:
            self.missed.append(f"staff count {units:+d} units")
            return False
        return True

    def _step(self, name: str, condition: Callable[[], object]) -> bool:
        came = seen_within(STEP_SECONDS, condition)
        if not came:
            self.missed.append(name)
        return came

    def _waiting(self, sku: str) -> bool:
        return line.look(redis.connect(), sku).waiting >= self.units + BEYOND_THE_STOCK

    def _free(self) -> int:
        return int(Stock.objects.values_list("available", flat=True).get(sku=self.skus[0]))
