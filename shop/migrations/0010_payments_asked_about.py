"""The looks for payments that are open read only these: indexes with their conditions, and nothing that was answered."""

from datetime import timedelta

from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.lookups import LessThan

from shop.models import InUtc

STILL_ASKED_ABOUT = Q(state="pending") | Q(
    LessThan(F("changed_at") - F("created_at"), timedelta(hours=12)), state="declined"
)
NEXT_QUESTION = InUtc(F("changed_at")) + (F("changed_at") - F("created_at"))


class Migration(migrations.Migration):
    dependencies = [("shop", "0009_orders_have_sale")]
    operations = [
        migrations.RemoveIndex("payment", "payment_open"),
        migrations.AddIndex(
            "payment", models.Index(NEXT_QUESTION, condition=STILL_ASKED_ABOUT, name="payment_asked_about")
        ),
        migrations.AddIndex(
            "payment",
            models.Index(fields=["changed_at"], condition=Q(state="refund_due"), name="payment_refund_due"),
        ),
    ]
