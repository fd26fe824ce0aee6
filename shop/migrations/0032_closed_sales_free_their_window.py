"""A sale that staff closed frees its window: another sale of its SKU may take it.

Going back is refused by the database once another sale has taken the window of a closed one.
"""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import migrations
from django.db.models import Q, Value

import shop.models


class Migration(migrations.Migration):
    dependencies = [("shop", "0031_what_goes_with_its_time")]
    operations = [
        migrations.RemoveConstraint("sale", "sales_of_one_sku_never_overlap"),
        migrations.AddConstraint(
            "sale",
            ExclusionConstraint(
                name="sales_of_one_sku_never_overlap",
                expressions=[
                    (shop.models.OnePoint("stock", "stock", Value("[]")), RangeOperators.OVERLAPS),
                    (shop.models.TimeRange("opens_at", "closes_at", Value("[)")), RangeOperators.OVERLAPS),
                ],
                condition=~Q(switch="closed"),
            ),
        ),
    ]
