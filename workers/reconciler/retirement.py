"""Retires sales that ended long enough ago, and lets Redis forget what a retirement that was broken off left there.
Never retires a sale that is not settled; of many that are due, some at each round. One that fails keeps no other back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from inventory.exceptions import InvalidRequest
from inventory.fault_injection import fault_point
from inventory.line import forgetting
from inventory.redis import Client
from shop.models import Sale
from shop.staff import retiring
from workers.reconciler.books import skus_on_sale

log = structlog.get_logger(__name__)

ACTOR = "reconciler"
REASON = "over and settled"
MAX_A_ROUND = 20
# Between one pass over everything that is due and the next: what was not settled then may be now.
PASS_SECONDS = 30.0


class Retirement:
    """The retirements of one reconciler; any number may run. throttle: called before each sale and each SKU, and after
    each step of forgetting; what it raises ends the round."""

    def __init__(self, client: Client, *, throttle: Callable[[], None]) -> None:
        self._client = client
        self._throttle = throttle
        self._after_id = 0
        self._forgotten_sku = ""
        self._next_pass_at = float("-inf")

    def work_once(self) -> int:
        """Retire some sales that are due; return how many. Raises RedisUnavailable, DatabaseError.

        After an error the next call goes on after the sale, or the SKU, that failed.
        """
        if self._after_id == 0:
            if time.monotonic() < self._next_pass_at:
                return 0
            self._next_pass_at = time.monotonic() + PASS_SECONDS
        retired, sales = 0, retiring.due(limit=MAX_A_ROUND, after_id=self._after_id)
        for sale_id, slug in sales:
            self._throttle()
            self._after_id = sale_id
            retired += self._retire(slug)
        if len(sales) < MAX_A_ROUND:
            self._after_id = 0
            self._forget_left()
        return retired

    def _retire(self, slug: str) -> bool:
        try:
            sku = retiring.mark_retired(slug, actor=ACTOR, reason=REASON)
        except InvalidRequest as error:
            log.info("not retired", action="retire_later", sale=slug, detail=error.detail)
            return False
        fault_point("before_forget")
        self._forget(sku)
        fault_point("after_forget")
        return True

    def _forget(self, sku: str) -> None:
        def step() -> None:
            fault_point("in_forget")
            self._throttle()

        retiring.forget_retired(sku, throttle=step)

    def _forget_left(self) -> None:
        """Forget what is retired and still known: its process died in between, or the line was not empty then."""
        known = forgetting.skus_known(self._client)
        retired = Sale.objects.filter(retired_at__isnull=False, stock__sku__in=known)
        skus = set(retired.order_by().values_list("stock__sku", flat=True))
        last = self._forgotten_sku
        try:
            for sku in sorted(skus, key=lambda sku: (sku <= last, sku)):
                self._throttle()
                self._forgotten_sku = sku
                self._forget(sku)
        finally:  # a shard of a Cluster that is away keeps no other's SKU off the list
            forgetting.note_skus(self._client, list(skus_on_sale()))
