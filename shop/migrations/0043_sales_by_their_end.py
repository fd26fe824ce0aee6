"""Gives sales an index by their end: of years of past sales only those are read that are shown, or old enough to go."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # Staff may change a sale meanwhile.
    atomic = False
    dependencies = [("shop", "0042_buyers_go_alongside_acts")]
    operations = [AddIndexConcurrently("sale", models.Index(fields=["closes_at"], name="sale_by_end"))]
