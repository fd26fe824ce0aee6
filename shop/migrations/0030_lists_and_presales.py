"""Lists of the e-mail addresses that may enter a sale, and the moment from which everybody may."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0029_verified_emails")]
    operations = [
        migrations.AddField(
            "sale",
            "email_list",
            models.CharField(blank=True, db_default="", default="", editable=False, max_length=6),
        ),
        migrations.AddField(
            "sale", "public_at", models.DateTimeField("for everybody from", blank=True, null=True)
        ),
        migrations.CreateModel(
            name="ListedEmail",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64)),
                (
                    "sale",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="listed_emails", to="shop.sale"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=["sale", "digest"], name="address_once_per_list")],
            },
        ),
    ]
