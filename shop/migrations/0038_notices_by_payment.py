"""Finds every notice of a payment: the page of an order shows them all."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # Providers go on telling of money meanwhile.
    atomic = False
    dependencies = [("shop", "0037_holds_as_long_as_promised")]
    operations = [
        AddIndexConcurrently("paymentnotice", models.Index(fields=["reference"], name="payment_notice_by_reference")),
    ]
