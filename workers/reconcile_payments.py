"""Asks again for refunds that are due, and for notices that never came. Never decides what is paid.
Called by the reconciler; the work is done by shop/payment_care.py.
"""

from __future__ import annotations

from shop import payment_care
from workers.reconcile_report import REPAIRED, Drift


def care_for_payments() -> list[Drift]:
    """Bring on what providers and we owe each other; return one difference a kind of which there was any."""
    brought = {"refund_due": payment_care.retry_refunds(), "lost_notice": payment_care.collect_lost_notices()}
    return [
        Drift(kind, "", "payments", f"{count} brought to an end", REPAIRED) for kind, count in brought.items() if count
    ]
