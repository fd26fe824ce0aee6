"""Stock and its movements: the truth about every unit, with its constraints. Holds no logic.
Never written except by ledger.py (a rule test holds it). Read by shop, workers, audit.
"""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_noop as _

from inventory.redis.keys import SKU_PATTERN


class Stock(models.Model):
    """One row a SKU. available + held + sold = total, none below zero: the database refuses anything else (I1, I2)."""

    sku = models.CharField(max_length=40, unique=True, validators=[RegexValidator(SKU_PATTERN)])
    total = models.PositiveIntegerField(default=0)
    available = models.PositiveIntegerField(default=0)
    held = models.PositiveIntegerField(default=0)
    sold = models.PositiveIntegerField(default=0)
    # The highest lock fence that has written here; a lower one is refused (I16, pitfall L16).
    fence = models.BigIntegerField(default=0)
    # Rises with every write, so that a late message about an older stock is recognised.
    version = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "stock"
        permissions = [("force_release_lock", _("Can take a lock away from its holder"))]
        constraints = [
            models.CheckConstraint(condition=Q(available__gte=0), name="stock_available_not_negative"),
            models.CheckConstraint(condition=Q(held__gte=0), name="stock_held_not_negative"),
            models.CheckConstraint(condition=Q(sold__gte=0), name="stock_sold_not_negative"),
            models.CheckConstraint(
                condition=Q(total=F("available") + F("held") + F("sold")), name="stock_every_unit_is_somewhere"
            ),
        ]

    def __str__(self) -> str:
        return self.sku


class StockMovement(models.Model):
    """One change of Stock.available, written once and never changed (a trigger and a missing right see to it, I20)."""

    class Kind(models.TextChoices):
        LOAD = "load", "load"  # units come into the shop: +n
        ADJUST = "adjust", "adjust"  # staff correct the count: ±n
        HOLD = "hold", "hold"  # a request gets its units: −n
        RELEASE = "release", "release"  # a hold ended without a sale: +n
        RETAKE = "retake", "retake"  # a payment came after the hold had ended, and the units were still free: −n
        RETURN = "return", "return"  # something sold was refunded and its units are free again: +n

    # Triggers keep the reference, once a statement: a foreign key checks each row.
    stock = models.ForeignKey(Stock, on_delete=models.PROTECT, related_name="movements", db_constraint=False)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    delta = models.IntegerField()
    request_id = models.CharField(max_length=40, null=True, blank=True)  # noqa: DJ001 - NULL keeps UNIQUE off loads
    fence = models.BigIntegerField(null=True, blank=True)
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["request_id", "kind"], name="movement_once_per_request_and_kind"),
            models.CheckConstraint(
                condition=Q(kind__in=["hold", "release", "retake", "return"], request_id__isnull=False)
                | Q(kind__in=["load", "adjust"], request_id__isnull=True),
                name="movement_of_a_request_names_it",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["hold", "retake"], delta__lt=0)
                | Q(kind__in=["load", "release", "return"], delta__gt=0)
                | Q(kind="adjust"),
                name="movement_has_the_sign_of_its_kind",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.delta:+d}"
