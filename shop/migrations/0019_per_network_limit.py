"""How many units of a sale one network may be let in for."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0018_acts_of_no_sale")]

    operations = [
        migrations.AddField("sale", "per_network_limit", models.PositiveIntegerField(blank=True, null=True)),
    ]
