"""Gives a crash test a line of its own, a settler that meets a fault, and a healthy one that waits for its cue.
Never lets the healthy settler work before the other has met its fault: it is frozen until then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inventory import redis
from inventory.audit import line as audit_line
from inventory.fault_injection import marker
from inventory.line import reading
from inventory.redis import keys
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.road import queue
from tests.support.servers.shop_processes import ROOT, STOP_SECONDS, settler_process
from tests.support.shopkeeping import assert_books_balance, close_sale, fill_line, make_sale
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess

LOCK_TTL_MS, BATCH = 1000, 50
BUYERS, UNITS, LATE = 300, 310, 20


@dataclass(frozen=True)
class Victim:
    """A settler that meets a fault, and its log."""

    process: ChildProcess
    log: Path

    def wait_until_it_reaches(self, name: str) -> None:
        """Return when it has written that it is at fault point `name`: what follows is the fault."""
        wait_until(lambda: marker(name) in self.log.read_text(), what=f"{name} is reached")


@dataclass(frozen=True)
class FaultShop:
    """A Valkey of the module's own, a frozen healthy settler, and the environment for more."""

    environment: Mapping[str, str]
    healthy: ChildProcess

    def wake_healthy(self) -> None:
        """Let the healthy settler work."""
        os.kill(self.healthy.pid, signal.SIGCONT)

    def freeze_healthy(self) -> None:
        """Stop the healthy settler, while it holds no lock."""
        os.kill(self.healthy.pid, signal.SIGSTOP)

    @contextmanager
    def victim(self, fault: str, *, folder: Path) -> Iterator[Victim]:
        """Run a settler that meets `fault`."""
        environment = {**self.environment, "FAIRDROP_FAULT": fault}
        with settler_process(environment, folder=folder, name="victim") as process:
            yield Victim(process, folder / "victim.log")


def settlers_environment(environment: Mapping[str, str], *, valkey_url: str) -> dict[str, str]:
    """Return `environment` for settlers with short locks and small batches on that Valkey."""
    return {
        **environment,
        "REDIS_URL": valkey_url,
        "FAIRDROP_LOCK_TTL_MS": str(LOCK_TTL_MS),
        "FAIRDROP_SETTLE_BATCH": str(BATCH),
    }


@contextmanager
def unguarded_settler(
    guard: str, environment: Mapping[str, str], *, folder: Path, fault: str = "", name: str = "settler"
) -> Iterator[Victim]:
    """Run a settler without one of its guards ('' = with all of them), that meets `fault` or none."""
    child = ChildProcess(
        name=name,
        arguments=[sys.executable, "-m", "tests.support.crashes.unguarded_settler", guard],
        environment={**environment, "FAIRDROP_FAULT": fault},
        folder=ROOT,
        log_path=folder / f"{name}.log",
        stop_timeout_seconds=STOP_SECONDS,
    )
    try:
        yield Victim(child.start(), folder / f"{name}.log")
    finally:
        child.stop()


def full_line(sku: str, *, limit: int = 1) -> SaleCard:
    """Make a sale whose last units are for the first latecomers, with a long line."""
    card = make_sale(sku, units=UNITS, line_capacity=BUYERS + LATE, limit=limit)
    fill_line(card, buyers=BUYERS)
    return card


def latecomers(card: SaleCard) -> None:
    """Let more buyers ask, behind everybody."""
    queue(card, *(f"late-{number}" for number in range(LATE)))
    close_sale(card)  # so that those for whom nothing is left are told, and do not wait for holds to end


def decided(card: SaleCard) -> int:
    """Return how many requests of a sale's line have been answered."""
    figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    assert figures is not None
    return figures.decided


def wait_until_at_rest(card: SaleCard) -> None:
    """Return when nobody waits, nobody is in flight and nobody holds the lock, whatever became of them."""

    def at_rest() -> bool:
        seen = audit_line.look(redis.connect(), card.sku)
        return seen.waiting == seen.in_flight == 0 and redis.connect().get(keys.lock(card.sku)) is None

    wait_until(at_rest, what="the line is at rest")


def wait_until_decided(card: SaleCard) -> None:
    """Return when everybody was answered and nobody holds the lock."""

    def at_rest() -> bool:
        return decided(card) == BUYERS + LATE and redis.connect().get(keys.lock(card.sku)) is None

    wait_until(at_rest, what="everything is decided")


def assert_decided_once_and_in_order(card: SaleCard) -> None:
    """Fail unless the first in line hold every unit, the rest were told, and nobody was forgotten or told twice."""
    counts = assert_books_balance(card)
    wanted = (BUYERS + LATE, UNITS, BUYERS + LATE - UNITS, 0)
    assert tuple(counts[name] for name in ("decided", "orders_held", "orders_sold_out", "dead_letters")) == wanted
    states = list(Order.objects.filter(sale_id=card.sale_id).order_by("seq").values_list("state", flat=True))
    assert states == ["held"] * UNITS + ["sold_out"] * (BUYERS + LATE - UNITS)
