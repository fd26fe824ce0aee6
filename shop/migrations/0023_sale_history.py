"""The recorded history of each sale, and the ways to money and to addresses that staff look for."""

import django.db.models.deletion
import django.db.models.functions.text
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0022_delivery_addresses")]
    operations = [
        migrations.CreateModel(
            name="SaleSample",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("since", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("available", models.PositiveIntegerField()),
                ("held", models.PositiveIntegerField()),
                ("sold", models.PositiveIntegerField()),
                ("waiting", models.PositiveIntegerField(null=True)),
                ("rate", models.FloatField(null=True)),
                ("p50_ms", models.FloatField(null=True)),
                ("p99_ms", models.FloatField(null=True)),
                (
                    "sale",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="samples",
                        to="shop.sale",
                    ),
                ),
            ],
            options={
                "ordering": ["since"],
                "constraints": [
                    models.UniqueConstraint(fields=("sale", "since"), name="sample_once_per_moment"),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="orderevent",
            index=models.Index(
                condition=models.Q(("to_state", "paid"), ("from_state", "paid"), _connector="OR"),
                fields=["at"],
                name="event_of_money",
            ),
        ),
        migrations.AddIndex(
            model_name="contact",
            index=models.Index(django.db.models.functions.text.Upper("address"), name="contact_by_address"),
        ),
    ]
