"""What the sandbox itself keeps: charges, and what it has to say about each. Knows nothing of orders.
Written by accounts.py and deliveries.py, as if they were another company's books.
"""

from __future__ import annotations

import secrets

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from shop.models import CHARGE_LIFE


def new_event_id() -> str:
    """Return a name for one event that nobody can guess."""
    return f"evt_{secrets.token_hex(12)}"


class Charge(models.Model):
    """What a shop wants to collect. reference: the shop's name for it, the same for a retry."""

    class State(models.TextChoices):
        OPEN = "open", "open"
        CAPTURED = "captured", "captured"
        DECLINED = "declined", "declined"
        REFUNDED = "refunded", "refunded"

    reference = models.CharField(max_length=64)
    amount = models.DecimalField(max_digits=16, decimal_places=2)
    currency = models.CharField(max_length=3)
    title = models.CharField(max_length=120)
    return_url = models.CharField(max_length=200)
    notice_url = models.CharField(max_length=300)
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    created_at = models.DateTimeField(db_default=Now())
    # Only shown: a page that stays open lets a late payment be tried.
    ends_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["reference"], name="charge_once_per_reference")]

    def __str__(self) -> str:
        return f"{self.reference} {self.state}"

    @property
    def is_over(self) -> bool:
        """Say whether it is too late to pay this charge."""
        return bool(timezone.now() - self.created_at >= CHARGE_LIFE)


class Event(models.Model):
    """Something that happened to a charge. due_at: when the shop is to be told; empty: it has to ask."""

    charge = models.ForeignKey(Charge, on_delete=models.PROTECT, related_name="events")
    event_id = models.CharField(max_length=40, default=new_event_id)
    kind = models.CharField(max_length=10)
    happened_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    delivered_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["event_id"], name="event_once")]
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(delivered_at__isnull=True, due_at__isnull=False), name="event_to_deliver"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.event_id}"
