"""Deletes addresses of buyers that are old enough, and marks of networks and cards, once an hour; of many, some at each
round. Never deletes an order, and never an address that is still needed (shop/orders/deliveries.py).
"""

from __future__ import annotations

import time

import structlog

from shop.orders import deliveries, marks

log = structlog.get_logger(__name__)

PASS_SECONDS = 3600.0


class Retention:
    """The retention of one reconciler; any number may run."""

    def __init__(self) -> None:
        self._next_pass_at = float("-inf")

    def work_once(self) -> int:
        """Delete what is due; return how many addresses and marks that were. Raises DatabaseError."""
        if time.monotonic() < self._next_pass_at:
            return 0
        sent, mailed = deliveries.delete_old()
        networks, cards = marks.delete_old()
        # A sale's marks may be few, and those of the next one many.
        if max(sent, mailed, cards) < deliveries.MAX_DELETED and not networks:
            self._next_pass_at = time.monotonic() + PASS_SECONDS
        if sent or mailed:
            log.info("addresses deleted", action="addresses_deleted", deliveries=sent, contacts=mailed)
        if networks or cards:
            log.info("marks deleted", action="marks_deleted", networks=networks, cards=cards)
        return sent + mailed + networks + cards
