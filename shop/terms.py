"""Says until which seq the past terms of a sale held: until the line had heard of those that followed.
Never changes what a sale offers. Called by the catalogue after it has primed a sale.
"""

from __future__ import annotations

from inventory import priming, redis
from shop.models import PastTerms

# What the trigger writes: nobody has told the line yet, so everyone in it came under these terms.
OPEN_END = 2**63 - 1


def end_past_terms(client: redis.Client, sku: str, *, sale_id: int) -> None:
    """Write down when the terms before those of the line ended, by the line's clock, the only one that gives seqs.

    By the database's clock a buyer who was let in before the line knew of a new price would pay it. Safe to repeat.
    Raises RedisUnavailable.
    """
    open_terms = PastTerms.objects.filter(sale_id=sale_id, until_us=OPEN_END)
    if open_terms.exists():
        version, since_us = priming.terms_since(client, sku, sale_id=sale_id)
        open_terms.filter(version__lt=version).update(until_us=since_us)
