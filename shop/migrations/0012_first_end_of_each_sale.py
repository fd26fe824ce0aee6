"""The first end of a sale's holds is found without reading the holds of all other sales."""

from django.db import migrations, models
from django.db.models import Q

from shop.models import InUtc


class Migration(migrations.Migration):
    dependencies = [("shop", "0011_failed_logins")]
    operations = [
        migrations.AddIndex(
            "order",
            models.Index(
                "sale", InUtc("hold_expires_at"), condition=Q(state="held"), name="order_held_by_sale_and_end"
            ),
        ),
    ]
