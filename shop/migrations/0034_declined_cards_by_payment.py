"""Finds the notices of declined cards by their payment: how many there were is asked before each payment."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    # Providers go on telling of money meanwhile.
    atomic = False
    dependencies = [("shop", "0033_request_keys_go_with_buyers")]
    operations = [
        AddIndexConcurrently(
            "paymentnotice",
            models.Index(
                fields=["reference"],
                condition=Q(kind__in=("declined", "card_declined")),
                name="payment_notice_declined",
            ),
        ),
    ]
