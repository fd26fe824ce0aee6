"""The fields of a sale have the names of the glossary. Columns, and what is asked of the database, stay as they were,
so processes of the version before go on: only what Django remembers of the tables changes.
"""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import migrations, models
from django.db.models import Q, Value

import shop.models

STATES = [("on", "on"), ("paused", "paused"), ("closed", "closed")]
LINE_CAPACITY = models.PositiveIntegerField(default=200, db_column="room")
OPERATOR_STATE = models.CharField("switch", choices=STATES, default="on", max_length=6, db_column="switch")
NEVER_OVERLAP = ExclusionConstraint(
    name="sales_of_one_sku_never_overlap",
    expressions=[
        (shop.models.OnePoint("stock", "stock", Value("[]")), RangeOperators.OVERLAPS),
        (shop.models.TimeRange("opens_at", "closes_at", Value("[)")), RangeOperators.OVERLAPS),
    ],
    condition=~Q(operator_state="closed"),
)


class Migration(migrations.Migration):
    dependencies = [("shop", "0034_declined_cards_by_payment")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint("sale", NEVER_OVERLAP.name),
                migrations.RenameField("sale", "room", "line_capacity"),
                migrations.AlterField("sale", "line_capacity", LINE_CAPACITY),
                migrations.RenameField("sale", "switch", "operator_state"),
                migrations.AlterField("sale", "operator_state", OPERATOR_STATE),
                migrations.AddConstraint("sale", NEVER_OVERLAP),
                migrations.RenameField("termstemplate", "room", "line_capacity"),
                migrations.AlterField("termstemplate", "line_capacity", LINE_CAPACITY.clone()),
            ]
        )
    ]
