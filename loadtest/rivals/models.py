"""The rivals' own stock and orders: no table of the shop is touched by them. Holds no rule of any strategy."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now


class RivalStock(models.Model):
    """What one sale of one rival has to sell. available: what a rival that counts in the database has left."""

    objects: ClassVar[models.Manager[RivalStock]] = models.Manager()

    sale = models.CharField(max_length=80, unique=True)
    units = models.PositiveIntegerField()
    available = models.PositiveIntegerField()

    class Meta:
        # Named here, so that the models can be read by a process in which the app is not mounted.
        app_label = "rivals"
        db_table = "rival_stock"

    def __str__(self) -> str:
        return self.sale


class RivalUnit(models.Model):
    """One unit of one sale, of the rival that has a row for each."""

    objects: ClassVar[models.Manager[RivalUnit]] = models.Manager()

    sale = models.CharField(max_length=80)
    taken = models.BooleanField(default=False)

    class Meta:
        app_label = "rivals"
        db_table = "rival_unit"
        indexes: ClassVar = [models.Index(fields=["sale"], condition=models.Q(taken=False), name="rival_unit_free")]

    def __str__(self) -> str:
        return f"{self.sale}: unit {self.pk}"


class RivalOrder(models.Model):
    """What one wish of one buyer came to: one unit, or none. A repeated click is refused by the unique constraint."""

    HELD, SOLD_OUT = "held", "sold_out"

    objects: ClassVar[models.Manager[RivalOrder]] = models.Manager()

    sale = models.CharField(max_length=80)
    buyer = models.CharField(max_length=64)
    key = models.CharField(max_length=100, blank=True, default="")
    state = models.CharField(max_length=10, default=HELD)
    decided_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "rivals"
        db_table = "rival_order"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["sale", "buyer", "key"], name="rival_order_one_a_wish"),
        ]

    def __str__(self) -> str:
        return f"{self.sale}: {self.buyer} {self.key}"
