"""Which Checkout Session of Stripe's belongs to which of our payments. Knows no order and no buyer."""

from __future__ import annotations

from django.db import models


class CheckoutSession(models.Model):
    """A session by our name for the payment. is_ended: the hold ended before the session's id was saved."""

    reference = models.CharField(max_length=64)
    # Stripe's name, kept before any buyer is given the address of its page; '' until then.
    session_id = models.CharField(max_length=255, blank=True)
    is_ended = models.BooleanField(default=False)
    # Of the idempotency keys: how often Stripe itself failed. It repeats its first answer to a key, an error too.
    tries = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["reference"], name="stripe_session_once_per_reference")]

    def __str__(self) -> str:
        return f"{self.reference} {self.session_id}"
