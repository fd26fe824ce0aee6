"""The look for payments whose hold is over reads only those whose provider was not told: an index with its condition."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("shop", "0016_mails")]
    operations = [
        migrations.AddIndex(
            "payment",
            models.Index(fields=["order"], condition=Q(state="pending", reason=""), name="payment_not_ended"),
        ),
    ]
