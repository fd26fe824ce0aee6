"""What the notary keeps: each sale's log, its tiles, how far it has read, and events that orders' history lacks.
Holds no logic. Triggers number the events under the stock's lock, and keep what was published as it is.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from inventory.models import Stock
from shop.models import Sale


class SaleLog(models.Model):
    """The log of one sale: how long it is, its last checkpoint, and what the next leaf depends on."""

    sale = models.OneToOneField(Sale, on_delete=models.PROTECT, primary_key=True, related_name="log")
    # A sale that had sold something before there were logs has none.
    is_kept = models.BooleanField(db_default=True)
    origin = models.CharField(max_length=300, db_default="")
    size = models.BigIntegerField(db_default=0)
    checkpoint = models.TextField(db_default="", blank=True)
    # The moment of the last publication, in µs: it never falls.
    at_us = models.BigIntegerField(db_default=0)
    # The number of the last event of its SKU that is in the log, or that need not be.
    cursor = models.BigIntegerField(db_default=0)
    is_open = models.BooleanField(db_default=False)
    is_closed = models.BooleanField(db_default=False)
    # Units free before the first leaf; after it, units that came or went for other sales and are not in the log yet.
    units = models.IntegerField(db_default=0)
    # The last admission that was published in its order, its seq, and the versions of the terms that were published.
    ordinal = models.BigIntegerField(db_default=0)
    seq = models.BigIntegerField(db_default=0)
    versions = models.JSONField(default=list, blank=True)
    # Ordinals that were declared lost, as [first, last]; and request → leaf of those that came back all the same.
    lost = models.JSONField(default=list, blank=True)
    restored = models.JSONField(default=dict, blank=True)

    def __str__(self) -> str:
        return self.origin


class Tile(models.Model):
    """Up to 256 leaves of a log (level -1), or up to 256 hashes of its tree. Bytes are only ever added at its end."""

    sale = models.ForeignKey(Sale, on_delete=models.PROTECT, related_name="+", db_index=False)
    level = models.SmallIntegerField()
    number = models.BigIntegerField()
    width = models.SmallIntegerField()
    data = models.BinaryField()
    # Of level -1: the last ordinal that was published in its order up to the end of this tile.
    ordinal = models.BigIntegerField(db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["sale", "level", "number"], name="tile_once"),
            models.CheckConstraint(condition=Q(width__gte=1, width__lte=256), name="tile_of_at_most_256"),
        ]

    def __str__(self) -> str:
        return f"{self.sale_id}/{self.level}/{self.number}"


class LineEvent(models.Model):
    """Units loaded or corrected, or an act of staff, numbered in one row with the history of orders (OrderEvent).

    Triggers write it with the movement or the act, under the stock's lock: nothing can be numbered in between later.
    """

    number = models.BigIntegerField(primary_key=True)
    stock = models.ForeignKey(Stock, on_delete=models.PROTECT, related_name="+", db_constraint=False)
    # NULL: it concerns the stock alone.
    sale = models.ForeignKey(Sale, on_delete=models.PROTECT, related_name="+", null=True, db_constraint=False)
    kind = models.CharField(max_length=8)  # load, adjust, act
    change = models.IntegerField()  # of the free units
    act = models.CharField(max_length=20, blank=True)
    role = models.CharField(max_length=8, blank=True)
    reason = models.CharField(max_length=32, blank=True)
    terms_version = models.BigIntegerField(null=True)  # of the sale after the act
    at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.number} {self.kind}"


class Reading(models.Model):
    """One row: the number up to which every event of every SKU was read. The notary that works moves it."""

    read_to = models.BigIntegerField(db_default=0)

    def __str__(self) -> str:
        return str(self.read_to)
