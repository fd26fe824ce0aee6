"""Whether a request for units of a sale needs a pass."""

from django.core.validators import MinValueValidator
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0025_forgotten_buyers")]

    operations = [
        migrations.AddField(
            "sale",
            "pass_mode",
            models.CharField(
                "pass",
                max_length=6,
                choices=[("never", "never"), ("always", "always"), ("rush", "in a rush")],
                default="never",
                db_default="never",
            ),
        ),
        migrations.AddField(
            "sale",
            "pass_rush",
            models.PositiveIntegerField(default=50, db_default=50, validators=[MinValueValidator(1)]),
        ),
    ]
